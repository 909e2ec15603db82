package memory

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T, clk *clocktesting.FakeClock) storetest.Subject {
		s := New(clk, storetest.Window)
		s.Limit(storetest.Limits())
		t.Cleanup(func() { require.NoError(t, s.ledger.Check()) })
		return storetest.Subject{Store: s}
	})
}

func offer(s *Store, n, maxLeases int) {
	var all lease.Offers
	for i := range n {
		all.Changed = append(all.Changed, &lease.Offer{Leasable: true, Candidate: lease.Candidate{
			Instance:      lease.Instance{ProxyUID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i), ID: fmt.Sprintf("instance-%d", i)},
			Proxy:         fmt.Sprintf("crawl/proxy-%05d", i),
			MaxLeases:     maxLeases,
			LatencyMillis: int64(i % 100),
		}})
	}
	s.Offer(all)
}

func TestSweepFreesEverythingWithoutACall(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := New(clk, time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	offer(s, 20, 5)
	for i := range 100 {
		l, err := s.Acquire(ctx, lease.Request{TTL: time.Minute, Session: fmt.Sprint(i), Key: fmt.Sprint(i)})
		require.NoError(t, err)
		require.NoError(t, s.Report(ctx, l.ID, lease.Report{Result: lease.ResultBanned, Target: fmt.Sprintf("%d.example", i)}))
	}
	require.Eventually(t, clk.HasWaiters, 5*time.Second, time.Millisecond)
	changed := s.Changed()
	clk.Step(time.Hour)
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.ledger.Next().IsZero()
	}, 5*time.Second, time.Millisecond)
	<-changed // and closes Changed
	cancel()
	require.NoError(t, <-done)
	require.NoError(t, s.ledger.Check()) // Run sweeps the ledger until then
}

func TestFencingTokensGrowOverARestart(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	var last uint64
	for range 3 {
		s := New(clk, time.Minute)
		offer(s, 1, 10)
		for range 5 {
			l, err := s.Acquire(t.Context(), lease.Request{TTL: time.Second})
			require.NoError(t, err)
			require.Greater(t, l.FencingToken, last)
			require.Less(t, l.FencingToken, uint64(1)<<53, "JSON readers take numbers as float64")
			last = l.FencingToken
		}
		clk.Step(time.Second)
	}
}
