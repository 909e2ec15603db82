package ledger

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// full is a fleet of n without any room.
func full(t testing.TB, n int) *Ledger {
	t.Helper()
	g := New(time.Hour, 0, nil)
	var all lease.Offers
	for i := range n {
		all.Changed = append(all.Changed, testOffer(i))
	}
	g.Offer(all)
	for i := range n * testOffer(0).MaxLeases {
		_, err := g.Acquire(start, lease.Request{TTL: time.Hour + time.Duration(i)*time.Second})
		require.NoError(t, err)
	}
	return g
}

// Each freed slot wakes all waiting requests, which retry.
func TestRetriedRefusalIsCached(t *testing.T) {
	g := full(t, 1_000)
	req := lease.Request{TTL: time.Minute, Selector: map[string]string{"geo": "geo-1"}}
	_, first := g.Acquire(start, req)
	require.Error(t, first)
	var again error
	allocated := testing.AllocsPerRun(10, func() { _, again = g.Acquire(start, req) })
	assert.Equal(t, first, again)
	assert.Less(t, allocated, 10.0, "100 proxies match")
}

// Check compares the cached stats with those of now.
func TestCachedStatsAreNeverStaleInSmallFleets(t *testing.T) {
	seed := rand.Uint64()
	w := &world{T: t, Ledger: New(time.Minute, 0, nil), rnd: rand.New(rand.NewPCG(seed, 0)), now: start}
	for i := range 12 {
		o := testOffer(i)
		o.MaxLeases = i % 2
		w.offers = append(w.offers, o)
	}
	w.Offer(lease.Offers{Changed: w.offers})
	cached := 0
	for step := range 2_000 {
		w.change()
		for range 4 {
			if l, err := w.Acquire(w.now, w.request()); err == nil {
				w.granted = append(w.granted[max(0, len(w.granted)-20):], l.ID)
			}
		}
		for _, r := range w.stats.byRequest {
			if r.revision == w.revision {
				cached++
			}
		}
		require.LessOrEqual(t, len(w.stats.byRequest), maxCachedStats)
		require.NoError(t, w.Check(), "seed %d, step %d", seed, step)
	}
	assert.Positive(t, cached)
}

// With many proxies cached stats may be stale for a moment, but their FreeAt is never too
// late and never in the past.
func TestStaleStatsNeverHaveALateFreeAt(t *testing.T) {
	const n = manyProxies + 100
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	g := New(time.Hour, 0, nil)
	var all lease.Offers
	for i := range n {
		o := testOffer(i)
		o.MaxLeases = 1 + i%2
		all.Changed = append(all.Changed, o)
	}
	g.Offer(all)
	for i := range n { // nearly all are leased for long, so that the few others decide
		ttl := time.Hour
		if i%200 == 0 {
			ttl = time.Second
		}
		_, err := g.Acquire(start, lease.Request{TTL: ttl})
		require.NoError(t, err)
	}
	now, again := start, 0
	var granted []lease.Lease
	for step := range 1_500 {
		now = now.Add(time.Duration(rnd.IntN(20)) * time.Millisecond)
		if len(granted) > 0 {
			l := granted[rnd.IntN(len(granted))]
			switch rnd.IntN(6) {
			case 0:
				g.Release(now, l.ID)
			case 1:
				_, _ = g.Renew(now, l.ID, time.Minute)
			case 2:
				_ = g.Report(now, l.ID, lease.Report{Result: lease.Results()[rnd.IntN(len(lease.Results()))]})
			case 3:
				g.EndCooldowns(now, l.Instance.ProxyUID, "")
			}
		}
		if rnd.IntN(100) == 0 {
			o := testOffer(rnd.IntN(n))
			o.MaxLeases = rnd.IntN(3)
			g.Offer(lease.Offers{Changed: []*lease.Offer{o}})
		}
		for {
			req := lease.Request{TTL: time.Hour, Target: []string{"", "a.example", "b.example"}[rnd.IntN(3)]}
			if rnd.IntN(3) == 0 {
				req.TTL = time.Duration(1+rnd.IntN(40)) * 10 * time.Millisecond
			}
			l, err := g.Acquire(now, req)
			if err == nil {
				granted = append(granted[max(0, len(granted)-40):], l)
				continue
			}
			var none *lease.NoMatchError
			require.ErrorAs(t, err, &none)
			exact := explain(req, g.matching(req)...)
			require.Equal(t, exact.Considered, none.Considered, "seed %d, step %d", seed, step)
			require.Equal(t, exact.Considered, none.AtCapacity+none.InCooldown)
			if none.Stats != exact {
				again++
			}
			require.True(t, none.FreeAt().After(now), "seed %d, step %d", seed, step)
			require.False(t, none.FreeAt().After(exact.FreeAt()), "seed %d, step %d: %s, not %s", seed, step, none.FreeAt(), exact.FreeAt())
			break
		}
	}
	require.NoError(t, g.Check())
	assert.Positive(t, again, "some stats were stale")
	now = now.Add(staleFor)
	_, err := g.Acquire(now, lease.Request{TTL: time.Minute})
	var none *lease.NoMatchError
	if errors.As(err, &none) {
		assert.Equal(t, explain(lease.Request{}, g.matching(lease.Request{})...), none.Stats, "not longer than staleFor")
	}
}

// BenchmarkRefused has no free slot among 10,000 proxies: with nothing cached, with stale
// stats after a change, and with valid ones.
func BenchmarkRefused(b *testing.B) {
	g := full(b, 10_000)
	for _, bench := range []struct {
		name   string
		change bool
		step   time.Duration
	}{{"uncached", true, staleFor}, {"stale", true, 0}, {"cached", false, 0}} {
		b.Run(bench.name, func(b *testing.B) {
			now := start
			for i := range b.N {
				now = now.Add(bench.step)
				if bench.change {
					g.startCooldown(Cooldown{ProxyUID: fmt.Sprint("none-", i), Target: "x", Until: start.Add(time.Hour)})
				}
				_, err := g.Acquire(now, lease.Request{TTL: time.Minute})
				if err == nil {
					b.Fatal("there was room")
				}
			}
		})
	}
}
