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

var start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// testOffer is the nth of a fleet in ten geos and five tiers.
func testOffer(n int) *lease.Offer {
	return &lease.Offer{
		Leasable:   true,
		Attributes: map[string]string{"geo": fmt.Sprint("geo-", n%10), "tier": fmt.Sprint("tier-", n/10%5)},
		Candidate: lease.Candidate{
			Instance:      lease.Instance{ProxyUID: fmt.Sprintf("00000000-0000-0000-0000-%012d", n), ID: fmt.Sprintf("instance-%d", n)},
			Proxy:         fmt.Sprintf("crawl/proxy-%06d", n),
			MaxLeases:     5,
			LatencyMillis: int64(16 + n%16),
			Scheme:        "http",
		},
	}
}

// world makes random changes to a ledger.
type world struct {
	*testing.T
	*Ledger
	rnd     *rand.Rand
	now     time.Time
	offers  []*lease.Offer
	granted []string
}

func (w *world) anySelector() map[string]string {
	out := map[string]string{}
	if w.rnd.IntN(3) > 0 {
		out["geo"] = fmt.Sprint("geo-", w.rnd.IntN(10))
	}
	if w.rnd.IntN(3) == 0 {
		out["tier"] = fmt.Sprint("tier-", w.rnd.IntN(5))
	}
	return out
}

func (w *world) request() lease.Request {
	req := lease.Request{
		Selector: w.anySelector(),
		Target:   []string{"", "a", "b", "c"}[w.rnd.IntN(4)],
		TTL:      time.Duration(1+w.rnd.IntN(100)) * time.Second,
	}
	if w.rnd.IntN(4) == 0 {
		req.Schemes = [][]string{{"http"}, {"https"}, {"http", "https"}}[w.rnd.IntN(3)]
	}
	for range w.rnd.IntN(4) {
		req.Exclude = append(req.Exclude, w.offers[w.rnd.IntN(len(w.offers))].Proxy)
	}
	return req
}

func (w *world) change() {
	id := "none"
	if len(w.granted) > 0 {
		id = w.granted[w.rnd.IntN(len(w.granted))]
	}
	switch w.rnd.IntN(9) {
	case 0:
		w.now = w.now.Add(time.Duration(w.rnd.IntN(20)) * time.Second)
		w.Advance(w.now)
	case 1, 2:
		w.Release(w.now, id)
	case 3, 4:
		_ = w.Report(w.now, id, lease.Report{Result: lease.ResultBanned, Target: []string{"", "a", "b"}[w.rnd.IntN(3)]})
	case 5:
		o := *w.offers[w.rnd.IntN(len(w.offers))]
		switch w.rnd.IntN(7) {
		case 0:
			o.Leasable = !o.Leasable
		case 1:
			o.MaxLeases = w.rnd.IntN(4)
		case 2:
			o.LatencyMillis = int64(w.rnd.IntN(100))
		case 3:
			o.Attributes = w.anySelector()
		case 4:
			o.Instance.ID += "x"
		case 5:
			w.Offer(lease.Offers{Gone: []string{o.ProxyUID}})
		case 6:
			o.Scheme = []string{"http", "https"}[w.rnd.IntN(2)]
		}
		w.Offer(lease.Offers{Changed: []*lease.Offer{&o}})
	case 6:
		_, _ = w.Renew(w.now, id, time.Minute)
	case 7:
		o := w.offers[w.rnd.IntN(len(w.offers))] // by another replica
		token := w.fence + 1 + uint64(w.rnd.IntN(20)/19)*1<<41
		w.Put(w.now, Record{Lease: lease.Lease{ID: fmt.Sprint("of another ", token), Instance: o.Instance, FencingToken: token, ExpiresAt: w.now.Add(time.Minute)}})
	case 8:
		if w.rnd.IntN(50) == 0 {
			w.Reset(State{Cooldowns: []Cooldown{{ProxyUID: w.offers[0].ProxyUID, Until: w.now.Add(time.Minute)}}})
		}
	}
}

// TestIndexAgreesWithAScan compares every choice with a scan of all proxies, with limits
// that evict views all the time, and with the default limits.
func TestIndexAgreesWithAScan(t *testing.T) {
	tight := indexLimits{views: 5, itemsPerProxy: 2, skipped: 0, seenOnce: 3}
	for name, l := range map[string]indexLimits{"tight": tight, "default": defaultIndexLimits} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			w := &world{T: t, Ledger: New(time.Minute, 0, nil), rnd: rand.New(rand.NewPCG(seed, 0)), now: start}
			w.index.limits = l
			for i := range 120 {
				w.offers = append(w.offers, testOffer(i))
			}
			w.Offer(lease.Offers{Changed: w.offers})
			most := 0
			for step := range 4_000 {
				w.change()
				req := w.request()
				want := w.scan(req)
				got, err := w.Acquire(w.now, req)
				if want == nil {
					require.Error(t, err, "seed %d, step %d", seed, step)
				} else {
					require.NoError(t, err, "seed %d, step %d", seed, step)
					require.Equal(t, want.Proxy, got.Proxy, "seed %d, step %d: %v", seed, step, req)
					w.granted = append(w.granted[max(0, len(w.granted)-300):], got.ID)
				}
				most = max(most, len(w.index.views))
				if step%100 == 0 {
					require.NoError(t, w.Check(), "seed %d, step %d", seed, step)
					require.LessOrEqual(t, len(w.index.views), l.views)
					require.LessOrEqual(t, len(w.index.seenOnce), l.seenOnce)
				}
			}
			assert.Greater(t, most, 3, "the test must use the index")
		})
	}
}

// TestIndexStaysSmall sends ever new selectors and targets.
func TestIndexStaysSmall(t *testing.T) {
	g := New(time.Minute, 0, nil)
	const n = 500
	for i := range n {
		g.Offer(lease.Offers{Changed: []*lease.Offer{testOffer(i)}})
	}
	for i := range 1_000 {
		req := lease.Request{TTL: time.Second, Target: fmt.Sprint(i), Selector: map[string]string{}}
		for j := range 12 {
			if i>>j&1 == 1 {
				req.Selector[fmt.Sprint("attribute-", j)] = "x"
			}
		}
		for range 3 {
			_, _ = g.Acquire(start, req)
		}
	}
	places := 0
	for _, v := range g.index.views {
		places += len(v.items)
	}
	assert.Equal(t, places, g.index.items)
	assert.LessOrEqual(t, places, defaultIndexLimits.itemsPerProxy*n)
	assert.LessOrEqual(t, len(g.index.views), defaultIndexLimits.views)
	assert.LessOrEqual(t, len(g.index.seenOnce), defaultIndexLimits.seenOnce)
	require.NoError(t, g.Check())
}

// TestTargetWithManyCooldownsGetsAView has so many cooling proxies that skipping them in
// each search would be slow.
func TestTargetWithManyCooldownsGetsAView(t *testing.T) {
	g := New(time.Hour, 0, nil)
	for i := range 100 {
		g.Offer(lease.Offers{Changed: []*lease.Offer{testOffer(i)}})
	}
	req := lease.Request{TTL: time.Second, Target: "a"}
	for range 30 {
		l, err := g.Acquire(start, req)
		require.NoError(t, err)
		require.NoError(t, g.Report(start, l.ID, lease.Report{Result: lease.ResultBanned}))
		g.Release(start, l.ID)
	}
	for range 70 { // now the cooling ones were granted longest ago
		l, err := g.Acquire(start, req)
		require.NoError(t, err)
		g.Release(start, l.ID)
	}
	require.NotContains(t, g.index.views, viewKey(lease.Request{}, "a"), "nothing was skipped yet")
	for range 2 {
		_, err := g.Acquire(start, req)
		require.NoError(t, err)
	}
	require.Contains(t, g.index.views, viewKey(lease.Request{}, "a"))
	require.NoError(t, g.Check())
	for range 500 - 72 {
		_, err := g.Acquire(start, req)
		require.True(t, err == nil || len(g.leases) == 350, "70 proxies with 5 places")
	}
	_, err := g.Acquire(start, req)
	require.Error(t, err)
	require.NoError(t, g.Check())
}

// TestSelectorWithZeroBytesGetsAViewOfItsOwn has a client send a value that, with zero
// bytes in it, looks like two attributes.
func TestViewKeysOfDifferentRequestsDiffer(t *testing.T) {
	seen := map[string]lease.Request{}
	for _, req := range []lease.Request{
		{}, {Target: "a"}, {Schemes: []string{"a"}}, {Schemes: []string{"a", "b"}}, {Schemes: []string{"ab"}},
		{Selector: map[string]string{"a": "b"}}, {Selector: map[string]string{"ab": ""}}, {Selector: map[string]string{"": "ab"}},
		{Schemes: []string{"a"}, Selector: map[string]string{"b": ""}}, {Schemes: []string{"a", "b", ""}}, {Target: "a", Schemes: []string{"a"}},
	} {
		key := viewKey(req, req.Target)
		assert.NotContains(t, seen, key, "%+v and %+v", req, seen[key])
		seen[key] = req
	}
	one := lease.Request{Selector: map[string]string{"a": "1", "b": "2"}}
	for range 20 {
		assert.Equal(t, viewKey(one, ""), viewKey(lease.Request{Selector: map[string]string{"b": "2", "a": "1"}}, ""))
	}
}

// A proxy whose scheme is edited changes views, and keeps its leases.
func TestEditedSchemeMovesAProxyToOtherViews(t *testing.T) {
	g, _ := small(2)
	plain, tls := lease.Request{TTL: time.Minute, Schemes: []string{"http"}}, lease.Request{TTL: time.Minute, Schemes: []string{"https"}}
	for range 3 { // the second time builds the views
		_, err := g.Acquire(start, plain)
		require.NoError(t, err)
		_, err = g.Acquire(start, tls)
		require.Error(t, err)
	}
	edited := testOffer(1)
	edited.Scheme = "https"
	leases := len(g.proxies[edited.ProxyUID].leases)
	g.Offer(lease.Offers{Changed: []*lease.Offer{edited}})
	require.NoError(t, g.Check())
	assert.Len(t, g.proxies[edited.ProxyUID].leases, leases)
	l, err := g.Acquire(start, tls)
	require.NoError(t, err)
	assert.Equal(t, edited.Proxy, l.Proxy)
	l, err = g.Acquire(start, plain)
	require.NoError(t, err)
	assert.Equal(t, testOffer(0).Proxy, l.Proxy)
}

func TestSelectorWithZeroBytesGetsAViewOfItsOwn(t *testing.T) {
	g := New(time.Hour, 0, nil)
	g.Offer(lease.Offers{Changed: []*lease.Offer{testOffer(0)}})
	odd := lease.Request{TTL: time.Second, Selector: map[string]string{"geo": "geo-0\x00tier\x00tier-0"}}
	for range 3 {
		_, err := g.Acquire(start, odd)
		var none *lease.NoMatchError
		require.ErrorAs(t, err, &none)
	}
	_, err := g.Acquire(start, lease.Request{TTL: time.Second, Selector: map[string]string{"geo": "geo-0", "tier": "tier-0"}})
	require.NoError(t, err)
	require.NoError(t, g.Check())
}
