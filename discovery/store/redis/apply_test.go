package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/ledger"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis/redistest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/storetest"
)

func fleet(n, maxLeases int) lease.Offers {
	var out lease.Offers
	for i := range n {
		out.Changed = append(out.Changed, &lease.Offer{Leasable: true, Candidate: lease.Candidate{
			Instance:  lease.Instance{ProxyUID: fmt.Sprintf("uid-%d", i), ID: fmt.Sprintf("instance-%d", i)},
			Proxy:     fmt.Sprintf("crawl/proxy-%d", i),
			MaxLeases: maxLeases,
		}})
	}
	return out
}

func anyProxy() lease.Request { return lease.Request{TTL: time.Minute, Holder: "test"} }

// replicas opens stores on one prefix, each with the fleet.
func replicas(t *testing.T, server *redistest.Server, clk *clocktesting.FakeClock, offers lease.Offers, n int) []*Store {
	out := make([]*Store, n)
	for i := range out {
		out[i] = openLocal(t, server, t.Name(), clk)
		out[i].Offer(offers)
	}
	return out
}

// Three replicas together keep the limits of one.
func TestReplicasKeepTheLimitsTogether(t *testing.T) {
	server := redistest.Start(t)
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	stores := replicas(t, server, clk, fleet(5, 100), 3)
	first, err := stores[0].Acquire(t.Context(), anyProxy())
	require.NoError(t, err)
	var sessions, targets, full atomic.Int64
	var wg sync.WaitGroup
	for c := range 64 {
		wg.Go(func() {
			req := anyProxy()
			req.Session = fmt.Sprint("session ", c)
			_, acquired := stores[c%3].Acquire(t.Context(), req)
			reported := stores[c%3].Report(t.Context(), first.ID, lease.Report{Result: lease.ResultBanned, Target: fmt.Sprint(c, ".example")})
			for counter, err := range map[*atomic.Int64]error{&sessions: acquired, &targets: reported} {
				if limit := (*lease.LimitError)(nil); errors.As(err, &limit) {
					full.Add(1)
					assert.True(t, limit.FreeAt.After(clk.Now()))
				} else if assert.NoError(t, err) {
					counter.Add(1)
				}
			}
		})
	}
	wg.Wait()
	limits := storetest.Limits()
	assert.EqualValues(t, limits.Sessions, sessions.Load())
	assert.EqualValues(t, limits.TargetsPerProxy, targets.Load())
	assert.EqualValues(t, 128-limits.Sessions-limits.TargetsPerProxy, full.Load())

	clk.Step(time.Hour) // ended sessions that were not swept yet do not count
	for i := range limits.Sessions {
		req := anyProxy()
		req.Session = fmt.Sprint("later ", i)
		_, err := stores[i%3].Acquire(t.Context(), req)
		require.NoError(t, err)
	}
	for _, s := range stores {
		require.NoError(t, s.sync(t.Context()))
		require.NoError(t, s.mirror.Check())
	}
}

// Cooldowns that an operator ends at one replica have ended at all.
func TestReplicasSeeEndedCooldowns(t *testing.T) {
	const targets = 2*endedPerCall + 17
	server := redistest.Start(t)
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := replicas(t, server, clk, fleet(1, 9), 2)
	for _, r := range s {
		r.cfg.Limits = lease.DefaultLimits
		r.mirror.SetLimits(r.cfg.Limits)
	}
	l, err := s[0].Acquire(t.Context(), anyProxy())
	require.NoError(t, err)
	for i := range targets {
		require.NoError(t, s[i%2].Report(t.Context(), l.ID, lease.Report{Result: lease.ResultBanned, Target: fmt.Sprint(i)}))
	}
	req := anyProxy()
	req.Target = fmt.Sprint(targets - 1)
	_, err = s[1].Acquire(t.Context(), req)
	require.ErrorAs(t, err, new(*lease.NoMatchError))

	ended, err := s[0].EndCooldowns(t.Context(), "uid-0", "")
	require.NoError(t, err)
	assert.Equal(t, targets, ended)
	_, err = s[1].Acquire(t.Context(), req)
	require.NoError(t, err)
	left, err := s[1].Cooldowns(t.Context(), "uid-0")
	require.NoError(t, err)
	assert.Empty(t, left)
	require.NoError(t, s[1].mirror.Check())

	c := server.Client()
	defer func() { _ = c.Close() }()
	keys, err := c.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	assert.NotContains(t, keys, s[0].key+":cooling")
	counted, err := c.HKeys(t.Context(), s[0].key+":count").Result()
	require.NoError(t, err)
	for _, name := range counted {
		assert.NotEqual(t, "C", name[:1], "no cooldown is counted any more")
	}
}

func TestReplicasNeverExceedMaxLeasesTogether(t *testing.T) {
	const proxies, maxLeases, clients, rounds = 5, 3, 64, 12
	server := redistest.Start(t)
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	stores := replicas(t, server, clk, fleet(proxies, maxLeases), 3)
	var holders [proxies]atomic.Int64
	var mu sync.Mutex
	tokens := map[uint64]bool{}
	var granted, refused atomic.Int64
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for r := range rounds {
				l, err := stores[(c+r)%3].Acquire(t.Context(), anyProxy())
				if none := (*lease.NoMatchError)(nil); errors.As(err, &none) {
					refused.Add(1)
					continue
				}
				if !assert.NoError(t, err) {
					return
				}
				granted.Add(1)
				var i int
				_, _ = fmt.Sscanf(l.Proxy, "crawl/proxy-%d", &i)
				assert.LessOrEqual(t, holders[i].Add(1), int64(maxLeases))
				mu.Lock()
				assert.False(t, tokens[l.FencingToken], "a fencing token was given twice")
				tokens[l.FencingToken] = true
				mu.Unlock()
				holders[i].Add(-1)
				assert.NoError(t, stores[(c+r+1)%3].Release(t.Context(), l.ID), "another replica ends it")
			}
		})
	}
	wg.Wait()
	assert.Positive(t, granted.Load())
	assert.Positive(t, refused.Load(), "the test must reach the limit")
	for _, s := range stores {
		require.NoError(t, s.sync(t.Context()))
		u, err := s.Usage(t.Context())
		require.NoError(t, err)
		assert.Zero(t, u.Total())
		assert.NoError(t, s.mirror.Check())
		assert.Empty(t, s.pending)
	}
}

func TestReplicasShareEverything(t *testing.T) {
	server := redistest.Start(t)
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := replicas(t, server, clk, fleet(2, 1), 2)
	req := anyProxy()
	req.Session, req.Key, req.Fingerprint, req.Target = "session", "key", "print", "shop.example"

	held, err := s[0].Acquire(t.Context(), req)
	require.NoError(t, err)
	same, err := s[1].Acquire(t.Context(), req)
	require.NoError(t, err)
	assert.True(t, same.Replayed)
	assert.Equal(t, held.ID, same.ID)
	other := req
	other.Fingerprint = "another"
	_, err = s[1].Acquire(t.Context(), other)
	require.ErrorIs(t, err, lease.ErrKeyReused)

	renewed, err := s[1].Renew(t.Context(), held.ID, time.Hour)
	require.NoError(t, err)
	got, err := s[0].Get(t.Context(), held.ID)
	require.NoError(t, err)
	assert.Equal(t, renewed.ExpiresAt, got.ExpiresAt)

	req.Key = ""
	var none *lease.NoMatchError
	_, err = s[1].Acquire(t.Context(), req)
	require.ErrorAs(t, err, &none, "the session stays on its full proxy")
	assert.Equal(t, 1, none.Considered)

	require.NoError(t, s[1].Report(t.Context(), held.ID, lease.Report{Result: lease.ResultBanned}))
	moved, err := s[0].Acquire(t.Context(), req)
	require.NoError(t, err, "it moves when its proxy cools")
	assert.NotEqual(t, held.Proxy, moved.Proxy)

	require.NoError(t, s[1].Release(t.Context(), held.ID))
	_, err = s[0].Get(t.Context(), held.ID)
	require.ErrorIs(t, err, lease.ErrUnknown)
	require.ErrorIs(t, s[0].Report(t.Context(), held.ID, lease.Report{Result: lease.ResultOK}), lease.ErrUnknown)
	_, err = s[0].Renew(t.Context(), held.ID, time.Hour)
	require.ErrorIs(t, err, lease.ErrUnknown)
}

func TestWaitersAreWokenByOtherReplicas(t *testing.T) {
	server := redistest.Start(t)
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := replicas(t, server, clk, fleet(1, 1), 2)
	l, err := s[0].Acquire(t.Context(), anyProxy())
	require.NoError(t, err)
	_, err = s[1].Acquire(t.Context(), anyProxy())
	require.Error(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	freed, changed, done := s[1].Freed(), s[1].Changed(), make(chan error, 1)
	go func() { done <- s[1].Run(ctx) }()
	require.Eventually(t, clk.HasWaiters, 10*time.Second, time.Millisecond)
	require.NoError(t, s[0].Release(t.Context(), l.ID))
	clk.Step(syncInterval)
	for _, c := range []<-chan struct{}{freed, changed} {
		select {
		case <-c:
		case <-time.After(10 * time.Second):
			t.Fatal("the waiter was not woken")
		}
	}
	cancel()
	require.NoError(t, <-done)
}

// A log that was cut off, and a history other than the mirror's, make the replica reload.
func TestMirrorIsReloadedWhenStale(t *testing.T) {
	tests := map[string]func(t *testing.T, server *redistest.Server, other *Store){
		"the log was cut off": func(t *testing.T, server *redistest.Server, other *Store) {
			for range 5 {
				_, err := other.Acquire(t.Context(), anyProxy())
				require.NoError(t, err)
			}
			c := server.Client()
			defer func() { _ = c.Close() }()
			require.NoError(t, c.XTrimMaxLen(t.Context(), other.key+":log", 2).Err())
		},
		"everything was lost": func(t *testing.T, server *redistest.Server, other *Store) {
			c := server.Client()
			defer func() { _ = c.Close() }()
			require.NoError(t, c.FlushAll(t.Context()).Err())
			other.mirror.Reset(ledger.State{})
		},
		"another history is as long": func(t *testing.T, server *redistest.Server, other *Store) {
			c := server.Client()
			defer func() { _ = c.Close() }()
			require.NoError(t, c.FlushAll(t.Context()).Err())
			other.generation, other.last, other.loaded = "", 0, false // as another process
			other.mirror.Reset(ledger.State{})
			for range 9 {
				_, err := other.Acquire(t.Context(), anyProxy())
				require.NoError(t, err)
			}
		},
		"more changes than one answer has": func(t *testing.T, _ *redistest.Server, other *Store) {
			for range changesPerAnswer {
				l, err := other.Acquire(t.Context(), anyProxy())
				require.NoError(t, err)
				require.NoError(t, other.Release(t.Context(), l.ID))
			}
		},
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
			s := replicas(t, server, clk, fleet(3, 9), 2)
			var fence uint64
			for range 3 {
				l, err := s[0].Acquire(t.Context(), anyProxy())
				require.NoError(t, err)
				fence = l.FencingToken
			}
			require.NoError(t, s[1].sync(t.Context()))
			happens(t, server, s[1])
			require.NoError(t, s[0].sync(t.Context()))
			require.NoError(t, s[1].sync(t.Context()))
			mine, err := s[0].Usage(t.Context())
			require.NoError(t, err)
			others, err := s[1].Usage(t.Context())
			require.NoError(t, err)
			assert.Equal(t, others.Active, mine.Active)
			assert.NoError(t, s[0].mirror.Check())
			clk.Step(recovery)
			l, err := s[0].Acquire(t.Context(), anyProxy())
			require.NoError(t, err)
			assert.Greater(t, l.FencingToken, fence, "tokens grow after any loss")
		})
	}
}

func TestRedisKeepsNothingOfWhatHasEnded(t *testing.T) {
	server := redistest.Start(t)
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := replicas(t, server, clk, fleet(10, 100), 1)[0]
	s.cfg.Limits = lease.DefaultLimits
	s.mirror.SetLimits(s.cfg.Limits)
	for i := range 200 {
		req := anyProxy()
		req.Key, req.Session, req.Target = fmt.Sprint("k", i), fmt.Sprint("s", i), fmt.Sprint("t", i)
		l, err := s.Acquire(t.Context(), req)
		require.NoError(t, err)
		require.NoError(t, s.Report(t.Context(), l.ID, lease.Report{Result: lease.ResultBanned}))
	}
	clk.Step(24 * time.Hour)
	for range 50 {
		require.NoError(t, s.Release(t.Context(), "no-such-lease"))
	}
	c := server.Client()
	defer func() { _ = c.Close() }()
	keys, err := c.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{s.key + ":rev", s.key + ":log", s.key + ":fence", s.key + ":count"}, keys)
}
