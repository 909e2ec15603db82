package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// changed offers a copy of the nth proxy with a change.
func changed(g *Ledger, n int, change func(o *lease.Offer)) {
	o := testOffer(n)
	change(o)
	g.Offer(lease.Offers{Changed: []*lease.Offer{o}})
}

func TestLeasesAreDetachedAndAttachedWithTheirInstance(t *testing.T) {
	g, _ := small(1)
	l, err := g.Acquire(start, lease.Request{TTL: time.Hour})
	require.NoError(t, err)
	old := l.Instance
	active := func(inFleet, detached int) {
		t.Helper()
		require.NoError(t, g.Check())
		p := g.proxies[old.ProxyUID]
		if p != nil {
			assert.Len(t, p.leases, inFleet)
		}
		n := 0
		for _, x := range g.detached {
			n += len(x.leases)
		}
		assert.Equal(t, detached, n)
		assert.Equal(t, 1, g.Usage(start).Active[old], "it counts on its instance in any case")
	}
	active(1, 0)
	changed(g, 0, func(o *lease.Offer) { o.Leasable = false })
	active(1, 0)
	changed(g, 0, func(o *lease.Offer) { o.ID = "instance-new" })
	active(0, 1)
	_, err = g.Get(start, l.ID)
	require.Equal(t, &lease.EndedError{Reason: lease.EndReplaced, Lease: l}, err)
	changed(g, 0, func(o *lease.Offer) { o.ID = "" })
	_, err = g.Get(start, l.ID)
	require.Equal(t, &lease.EndedError{Reason: lease.EndGone, Lease: l}, err)
	g.Offer(lease.Offers{Gone: []string{old.ProxyUID}})
	active(0, 1)
	_, err = g.Get(start, l.ID)
	require.Equal(t, &lease.EndedError{Reason: lease.EndDeleted, Lease: l}, err)
	changed(g, 0, func(*lease.Offer) {})
	active(1, 0)
	got, err := g.Get(start, l.ID)
	require.NoError(t, err)
	assert.Equal(t, l, got)
}

// TestRestoredLeasesWaitForTheFleet resets a ledger before its first offer, as a restart
// does: leases are usable, and count once the fleet is known.
func TestRestoredLeasesWaitForTheFleet(t *testing.T) {
	g, _ := small(1)
	var held []lease.Lease
	for range testOffer(0).MaxLeases {
		l, err := g.Acquire(start, lease.Request{TTL: time.Hour})
		require.NoError(t, err)
		held = append(held, l)
	}
	restored := New(time.Minute, 0, nil)
	restored.Reset(g.State())
	require.NoError(t, restored.Check())
	for _, l := range held {
		got, err := restored.Get(start, l.ID)
		require.NoError(t, err)
		assert.Equal(t, l, got)
	}
	assert.Equal(t, g.Fence(), restored.Fence())
	changed(restored, 0, func(*lease.Offer) {})
	require.NoError(t, restored.Check())
	_, err := restored.Acquire(start, lease.Request{TTL: time.Minute})
	var none *lease.NoMatchError
	require.ErrorAs(t, err, &none)
	assert.Equal(t, 1, none.AtCapacity)
}

func TestChangedOfferTakesEffectInViews(t *testing.T) {
	g, _ := small(3)
	req := lease.Request{TTL: time.Minute, Selector: map[string]string{"geo": "geo-1"}}
	for range 2 { // the second one builds the view
		l, err := g.Acquire(start, req)
		require.NoError(t, err)
		assert.Equal(t, testOffer(1).Proxy, l.Proxy)
		g.Release(start, l.ID)
	}
	require.Len(t, g.index.views, 1)
	changed(g, 1, func(o *lease.Offer) { o.Attributes = map[string]string{"geo": "geo-9"} })
	_, err := g.Acquire(start, req)
	require.Error(t, err)
	changed(g, 2, func(o *lease.Offer) { o.Attributes = map[string]string{"geo": "geo-1"} })
	l, err := g.Acquire(start, req)
	require.NoError(t, err)
	assert.Equal(t, testOffer(2).Proxy, l.Proxy)
	changed(g, 2, func(o *lease.Offer) {
		o.Attributes = map[string]string{"geo": "geo-1"}
		o.MaxLeases = 1
	})
	_, err = g.Acquire(start, req)
	require.Error(t, err)
	require.NoError(t, g.Check())
}
