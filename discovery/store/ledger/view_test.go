package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// viewOf is a view of n proxies that were never granted, best first.
func viewOf(n int, target string) (*view, []*proxy) {
	var members []*proxy
	for i := range n {
		o := testOffer(i)
		members = append(members, &proxy{Offer: o, Instance: o.Instance, Proxy: o.Proxy, room: o.MaxLeases})
	}
	shuffled := slices.Clone(members)
	rand.Shuffle(n, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	return newView(lease.Request{Target: target}, shuffled), members
}

func anyone(*proxy) bool { return true }

func TestRankOrdersByLoadThenLastGrant(t *testing.T) {
	a, b, c := rank{1, 9}, rank{2, 3}, rank{2, 4}
	for _, pair := range [][2]rank{{a, b}, {b, c}, {a, c}, {c, unavailable}} {
		assert.True(t, pair[0].before(pair[1]), "%v", pair)
		assert.False(t, pair[1].before(pair[0]), "%v", pair)
	}
	assert.False(t, a.before(a))
}

func TestRankPrefersFewestLeasesThenTheLastGrantThenLatency(t *testing.T) {
	fast, slow := &proxy{room: 3}, &proxy{room: 3, class: classes - 1}
	assert.True(t, fast.rank("").before(slow.rank("")), "of two that were never granted")
	fast.lastGrant = 1
	assert.True(t, slow.rank("").before(fast.rank("")), "latency takes no turn away")
	slow.lastGrant = 2
	assert.True(t, fast.rank("").before(slow.rank("")))

	p := &proxy{room: 3, class: 63, lastGrant: 7}
	idle := p.rank("")
	p.leases, p.class, p.lastGrant = []*activeLease{{}}, 0, 1
	assert.True(t, idle.before(p.rank("")), "fewest leases first")
	p.leases = append(p.leases, &activeLease{}, &activeLease{})
	assert.Equal(t, unavailable, p.rank(""), "full")
	p.room = 4
	assert.NotEqual(t, unavailable, p.rank(""))
	p.cooldowns = map[string]*cooldown{"a": {}}
	assert.Equal(t, unavailable, p.rank("a"), "cooling for the target")
	assert.NotEqual(t, unavailable, p.rank("b"))
	p.cooldowns[""] = &cooldown{}
	assert.Equal(t, unavailable, p.rank("b"), "cooling for all targets")
}

func TestNeverGrantedProxiesAreOrderedByName(t *testing.T) {
	v, members := viewOf(40, "")
	for i, want := range members {
		best, skipped := v.best(anyone)
		require.Same(t, want, best)
		require.Zero(t, skipped)
		want.lastGrant = uint64(1 + i)
	}
	best, _ := v.best(anyone)
	assert.Same(t, members[0], best, "granted longest ago")
}

func TestBestSkipsProxiesThatAreNotAllowed(t *testing.T) {
	v, members := viewOf(20, "")
	best, skipped := v.best(func(p *proxy) bool { return p == members[15] })
	assert.Same(t, members[15], best)
	assert.Equal(t, 15, skipped)
	best, skipped = v.best(func(*proxy) bool { return false })
	assert.Nil(t, best)
	assert.Equal(t, 20, skipped)
	best, skipped = v.best(anyone)
	assert.Same(t, members[0], best, "skipped proxies are back")
	assert.Zero(t, skipped)
	assert.Len(t, v.items, 20)
}

func TestBestCorrectsStaleRanks(t *testing.T) {
	v, members := viewOf(5, "a")
	for _, p := range members[:4] { // less preferred now, without an update of the view
		p.cooldowns = map[string]*cooldown{"a": {}}
	}
	best, skipped := v.best(anyone)
	assert.Same(t, members[4], best)
	assert.Zero(t, skipped, "unavailable proxies are not skipped but sorted")
	members[4].room = 0
	best, _ = v.best(anyone)
	assert.Nil(t, best)
	members[2].cooldowns = nil
	members[2].updateKeys()
	best, _ = v.best(anyone)
	assert.Same(t, members[2], best)
}

func TestViewKeepsItsItemsOverInsertAndRemove(t *testing.T) {
	v, members := viewOf(30, "")
	for _, i := range rand.Perm(30)[:20] {
		require.Len(t, members[i].items, 1)
		v.remove(members[i].items[0])
		require.Empty(t, members[i].items)
	}
	require.Len(t, v.items, 10)
	for _, p := range members {
		if len(p.items) == 0 {
			v.insert(p)
		}
	}
	for i, it := range v.items {
		require.Equal(t, i, it.index)
		require.Same(t, v, it.view)
	}
	best, _ := v.best(anyone)
	assert.Same(t, members[0], best)
}

func TestEmptyViewHasNoBest(t *testing.T) {
	best, skipped := newView(lease.Request{}, nil).best(anyone)
	assert.Nil(t, best)
	assert.Zero(t, skipped)
}

// TestOrderByLastGrantIsExact has tokens that are far apart, as after a store that lost
// its state: the proxy that was granted longest ago still comes first.
func TestOrderByLastGrantIsExact(t *testing.T) {
	g := New(time.Minute, 0, nil)
	const n = 10
	for i := range n {
		o := testOffer(10 * i)
		o.LatencyMillis = 20
		g.Offer(lease.Offers{Changed: []*lease.Offer{o}})
	}
	for i := range n {
		token := uint64(1+(i*7)%n) << 50
		r := Record{Lease: lease.Lease{ID: fmt.Sprint(i), Instance: testOffer(10 * i).Instance, FencingToken: token, ExpiresAt: start.Add(time.Second)}}
		g.Put(start, r)
	}
	now := start.Add(time.Second)
	var tokens []uint64
	for range n {
		p := g.choose(lease.Request{})
		require.NotNil(t, p)
		tokens = append(tokens, p.lastGrant)
		l, err := g.Acquire(now, lease.Request{TTL: time.Minute})
		require.NoError(t, err)
		require.Equal(t, p.Proxy, l.Proxy)
		g.Release(now, l.ID)
	}
	assert.True(t, slices.IsSorted(tokens), "%v", tokens)
	require.NoError(t, g.Check())
}
