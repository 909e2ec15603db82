package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

func TestChooseProposesAndChangesNothing(t *testing.T) {
	g, _ := small(3)
	g.Usage(start)
	before := g.Revision()
	c, err := g.Choose(start, lease.Request{TTL: time.Minute, Holder: "h", Session: "s", Key: "k"})
	require.NoError(t, err)
	assert.Equal(t, Choice{Offer: c.Offer}, c, "neither a session nor a key yet")
	assert.Equal(t, testOffer(0).Proxy, c.Offer.Proxy)
	assert.Equal(t, before, g.Revision())
	assert.Empty(t, g.State().Leases)
}

func TestChooseReturnsTheLeaseOfTheKeyAndTheSession(t *testing.T) {
	g, _ := small(2)
	req := lease.Request{TTL: time.Hour, Holder: "h", Session: "s", Key: "k", Fingerprint: "f"}
	l, err := g.Acquire(start, req)
	require.NoError(t, err)
	c, err := g.Choose(start, req)
	require.NoError(t, err)
	require.NotNil(t, c.Replayed)
	assert.Equal(t, l.ID, c.Replayed.ID)
	assert.True(t, c.Replayed.Replayed)
	other := req
	other.Fingerprint = "g"
	_, err = g.Choose(start, other)
	require.ErrorIs(t, err, lease.ErrKeyReused)

	changed(g, 0, func(o *lease.Offer) { o.ID = "instance-new" })
	c, err = g.Choose(start, other)
	require.NoError(t, err)
	assert.Nil(t, c.Replayed, "its instance is gone")
	assert.Equal(t, l.ID, c.Superseded)
	assert.Equal(t, l.Instance, c.Bound)
}

func TestPutReplacesTheLeaseWithItsID(t *testing.T) {
	g, k := small(1)
	r := Record{Lease: lease.Lease{ID: "l", Instance: testOffer(0).Instance, FencingToken: 7, ExpiresAt: start.Add(time.Minute)}}
	g.Put(start, r)
	r.ExpiresAt = start.Add(time.Hour)
	g.Put(start, r)
	got, known := g.Find(start, "l")
	require.True(t, known)
	assert.Equal(t, r, got)
	assert.EqualValues(t, 7, g.Fence())
	assert.EqualValues(t, 7, g.proxies[testOffer(0).ProxyUID].lastGrant)
	assert.Equal(t, 1, g.Usage(start).Total())
	assert.Empty(t, k.leases, "the authority has it, so the journal does not get it")
	require.NoError(t, g.Check())

	r.ExpiresAt = start.Add(-time.Second)
	g.Put(start, r)
	assert.Zero(t, g.Usage(start).Total(), "it has expired")
	_, known = g.Find(start, "l")
	assert.True(t, known, "and takes late reports")
	g.Drop(start, "l")
	g.Drop(start, "l")
	_, known = g.Find(start, "l")
	assert.False(t, known)
}

func TestPutSessionBindsLaterLeases(t *testing.T) {
	g, _ := small(3)
	x := Session{Holder: "h", Name: "s", Instance: testOffer(2).Instance, Until: start.Add(time.Hour)}
	g.PutSession(start, x)
	g.PutSession(start, Session{Holder: "h", Name: "ended", Instance: x.Instance, Until: start})
	assert.Equal(t, 1, g.Usage(start).Sessions)
	l, err := g.Acquire(start, inSession(time.Minute))
	require.NoError(t, err)
	assert.Equal(t, testOffer(2).Proxy, l.Proxy)
	x.Instance = testOffer(1).Instance
	g.PutSession(start, x)
	l, err = g.Acquire(start, inSession(time.Minute))
	require.NoError(t, err)
	assert.Equal(t, testOffer(1).Proxy, l.Proxy)
	require.NoError(t, g.Check())
}
