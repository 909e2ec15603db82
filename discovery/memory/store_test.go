package memory

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T, clk *clocktesting.FakeClock) discovery.LeaseStore {
		s := New(clk, storetest.Window)
		t.Cleanup(func() { checkInvariants(t, s) })
		return s
	})
}

// checkInvariants runs after every test: the maps and the heap must agree.
func checkInvariants(t *testing.T, s *Store) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	running, cooldowns := 0, 0
	for instance, leases := range s.running {
		assert.NotEmpty(t, leases, "an empty set is kept for %v", instance)
		for h := range leases {
			running++
			assert.Same(t, h, s.leases[h.ID], "a lease counts that is not held")
			assert.True(t, h.running)
		}
	}
	for _, h := range s.leases {
		assert.Same(t, &h.deadline, s.due[h.index], "a lease is lost to the deadlines")
		if h.running {
			running--
		}
	}
	assert.Zero(t, running)
	for uid, targets := range s.cooling {
		assert.NotEmpty(t, targets, "an empty set is kept for %v", uid)
		cooldowns += len(targets)
	}
	assert.Len(t, s.due, len(s.leases)+cooldowns)
}

func fleetOf(n, maxLeases int) []*lease.Candidate {
	out := make([]*lease.Candidate, n)
	for i := range out {
		out[i] = &lease.Candidate{
			Instance:      lease.Instance{ProxyUID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i), ID: fmt.Sprintf("instance-%d", i)},
			Proxy:         fmt.Sprintf("crawl/proxy-%05d", i),
			MaxLeases:     maxLeases,
			LatencyMillis: int64(i % 100),
		}
	}
	return out
}

func TestSweepFreesEverythingWithoutACall(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := New(clk, time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	fleet := fleetOf(20, 5)
	for i := range 100 {
		l, err := s.Acquire(ctx, lease.Request{Candidates: fleet, TTL: time.Minute})
		require.NoError(t, err)
		require.NoError(t, s.Report(ctx, l.ID, lease.Report{Result: lease.ResultBanned, Target: fmt.Sprintf("%d.example", i)}))
	}
	require.Eventually(t, clk.HasWaiters, 5*time.Second, time.Millisecond)
	clk.Step(10 * time.Minute)
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.leases)+len(s.running)+len(s.cooling)+len(s.due) == 0
	}, 5*time.Second, time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}

func TestCallsKeepMemoryBoundedWithoutASweep(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := New(clk, time.Minute)
	fleet := fleetOf(10, 1_000)
	for i := range 20_000 {
		l, err := s.Acquire(t.Context(), lease.Request{Candidates: fleet, TTL: time.Second})
		require.NoError(t, err)
		require.NoError(t, s.Report(t.Context(), l.ID, lease.Report{Result: lease.ResultBanned, Target: fmt.Sprintf("%d.example", i)}))
		clk.Step(time.Second)
		require.LessOrEqual(t, len(s.due), 130, "61 s of leases and 60 s of cooldowns")
	}
	checkInvariants(t, s)
}

func TestZeroWindowSwitchesCooldownsOff(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := New(clk, 0)
	fleet := fleetOf(1, 1)
	l, err := s.Acquire(t.Context(), lease.Request{Candidates: fleet, TTL: time.Second})
	require.NoError(t, err)
	require.NoError(t, s.Report(t.Context(), l.ID, lease.Report{Result: lease.ResultBanned}))
	clk.Step(time.Second)
	require.ErrorIs(t, s.Report(t.Context(), l.ID, lease.Report{Result: lease.ResultBanned}), lease.ErrUnknown)
	_, err = s.Acquire(t.Context(), lease.Request{Candidates: fleet, TTL: time.Second})
	require.NoError(t, err)
	checkInvariants(t, s)
}

func TestFencingTokensGrowOverARestart(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	fleet := fleetOf(1, 10)
	var last uint64
	for range 3 {
		s := New(clk, time.Minute)
		for range 5 {
			l, err := s.Acquire(t.Context(), lease.Request{Candidates: fleet, TTL: time.Second})
			require.NoError(t, err)
			require.Greater(t, l.FencingToken, last)
			require.Less(t, l.FencingToken, uint64(1)<<53, "JSON readers take numbers as float64")
			last = l.FencingToken
		}
		clk.Step(time.Second)
	}
}

// BenchmarkAcquire grants and releases one lease at a time while every fifth
// proxy cools and every fourth has a lease out.
func BenchmarkAcquire(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("proxies=%d", n), func(b *testing.B) {
			s := New(clock.RealClock{}, time.Hour)
			fleet := fleetOf(n, 5)
			for i, c := range fleet {
				if i%4 != 0 && i%5 != 0 {
					continue
				}
				l, err := s.Acquire(b.Context(), lease.Request{Candidates: []*lease.Candidate{c}, TTL: time.Hour})
				require.NoError(b, err)
				if i%5 == 0 {
					require.NoError(b, s.Report(b.Context(), l.ID, lease.Report{Result: lease.ResultBanned, Target: "example.com"}))
				}
			}
			req := lease.Request{Candidates: fleet, Target: "example.com", TTL: time.Minute}
			b.ReportAllocs()
			for b.Loop() {
				l, err := s.Acquire(b.Context(), req)
				if err != nil {
					b.Fatal(err)
				}
				_ = s.Release(b.Context(), l.ID)
			}
		})
	}
}
