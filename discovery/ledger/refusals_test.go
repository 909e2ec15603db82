package ledger

import (
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

// A thousand who wait for a place are woken by each that becomes free.
func TestWhatIsRefusedAgainIsNotLookedIntoAgain(t *testing.T) {
	g := full(t, 1_000)
	req := lease.Request{TTL: time.Minute, Selector: map[string]string{"geo": "geo-1"}}
	_, first := g.Acquire(start, req)
	require.Error(t, first)
	var again error
	allocated := testing.AllocsPerRun(10, func() { _, again = g.Acquire(start, req) })
	assert.Equal(t, first, again)
	assert.Less(t, allocated, 10.0, "100 proxies match")
}

// Nothing that happens is missed: Check compares what is remembered with what
// would be said now.
func TestRefusalsAreThoseOfNow(t *testing.T) {
	seed := rand.Uint64()
	w := &world{T: t, Ledger: New(time.Minute, 0, nil), rnd: rand.New(rand.NewPCG(seed, 0)), now: start}
	for i := range 12 {
		o := testOffer(i)
		o.MaxLeases = i % 2
		w.offers = append(w.offers, o)
	}
	w.Offer(lease.Offers{Changed: w.offers})
	remembered := 0
	for step := range 2_000 {
		w.change()
		for range 4 {
			if l, err := w.Acquire(w.now, w.request()); err == nil {
				w.granted = append(w.granted[max(0, len(w.granted)-20):], l.ID)
			}
		}
		if w.refusals.revision == w.revision {
			remembered += len(w.refusals.known)
		}
		require.LessOrEqual(t, len(w.refusals.known), maxRefusals)
		require.NoError(t, w.Check(), "seed %d, step %d", seed, step)
	}
	assert.Positive(t, remembered)
}

// BenchmarkRefused: nothing is free among 10,000 proxies. The first refusal after
// a change, and each further one.
func BenchmarkRefused(b *testing.B) {
	g := full(b, 10_000)
	for name, change := range map[string]bool{"first": true, "again": false} {
		b.Run(name, func(b *testing.B) {
			for i := range b.N {
				if change {
					g.cool(Cooldown{ProxyUID: fmt.Sprint("none-", i), Target: "x", Until: start.Add(time.Hour)})
				}
				_, err := g.Acquire(start, lease.Request{TTL: time.Minute})
				if err == nil {
					b.Fatal("there was room")
				}
			}
		})
	}
}
