package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// inSession is a request of the session "s".
func inSession(ttl time.Duration) lease.Request {
	return lease.Request{TTL: ttl, Holder: "h", Session: "s"}
}

// small is a ledger with n proxies and its journal.
func small(n int) (*Ledger, *kept) {
	k := newKept()
	g := New(10*time.Minute, 0, k)
	for i := range n {
		g.Offer(lease.Offers{Changed: []*lease.Offer{testOffer(i)}})
	}
	return g, k
}

func (k *kept) session() Session { return k.sessions[scopedName{"h", "s"}] }

func TestSessionIsJournaledAsItsLeasesNeedIt(t *testing.T) {
	g, k := small(3)
	until := func(d time.Duration) {
		t.Helper()
		require.Equal(t, start.Add(d+lease.SessionIdle), k.session().Until)
		require.NoError(t, g.Check())
	}
	long, err := g.Acquire(start, inSession(time.Hour))
	require.NoError(t, err)
	until(time.Hour)
	assert.Equal(t, long.Instance, k.session().Instance)
	short, err := g.Acquire(start, inSession(time.Minute))
	require.NoError(t, err)
	until(time.Hour)
	_, err = g.Renew(start, short.ID, 2*time.Hour)
	require.NoError(t, err)
	until(2 * time.Hour)
	g.Release(start, short.ID)
	until(time.Hour)
	g.Release(start.Add(time.Minute), long.ID)
	until(time.Minute)
	g.Advance(start.Add(time.Minute + lease.SessionIdle))
	assert.Empty(t, k.sessions)
	assert.Empty(t, g.holderSessions)
}

func TestSessionMovesWithItsLastGrant(t *testing.T) {
	g, k := small(2)
	first, err := g.Acquire(start, inSession(time.Hour))
	require.NoError(t, err)
	req := inSession(time.Minute)
	req.Exclude = []string{first.Proxy}
	second, err := g.Acquire(start, req)
	require.NoError(t, err)
	require.NotEqual(t, first.Proxy, second.Proxy)
	assert.Equal(t, second.Instance, k.session().Instance)
	assert.Equal(t, first.ExpiresAt.Add(lease.SessionIdle), k.session().Until, "as long as the longest lease needs it")
	require.Len(t, g.sessionOf(first).leases, 2)
}

func TestSessionProxyMustStillMatch(t *testing.T) {
	g, _ := small(2)
	l, err := g.Acquire(start, inSession(time.Hour))
	require.NoError(t, err)
	req := inSession(time.Minute)
	require.Equal(t, l.Proxy, g.sessionProxy(req).Proxy)
	other := req
	other.Holder = "another"
	assert.Nil(t, g.sessionProxy(other))
	none := req
	none.Session = ""
	assert.Nil(t, g.sessionProxy(none))
	excluded := req
	excluded.Exclude = []string{l.Proxy}
	assert.Nil(t, g.sessionProxy(excluded))
	selected := req
	selected.Selector = map[string]string{"geo": "elsewhere"}
	assert.Nil(t, g.sessionProxy(selected))
	require.NoError(t, g.Report(start, l.ID, lease.Report{Result: lease.ResultBanned, Target: "a"}))
	require.NotNil(t, g.sessionProxy(req))
	cooling := req
	cooling.Target = "a"
	assert.Nil(t, g.sessionProxy(cooling))
	g.Offer(lease.Offers{Gone: []string{l.Instance.ProxyUID}})
	assert.Nil(t, g.sessionProxy(req))
}

func TestSessionLimitNamesTheFirstEnd(t *testing.T) {
	g, _ := small(3)
	g.SetLimits(lease.Limits{Sessions: 2, TargetsPerProxy: 1, Targets: 1, Expired: 9})
	for i, name := range []string{"a", "b"} {
		_, err := g.Acquire(start, lease.Request{TTL: time.Duration(2-i) * time.Minute, Holder: "h", Session: name})
		require.NoError(t, err)
	}
	_, err := g.Acquire(start, inSession(time.Minute))
	require.Equal(t, &lease.LimitError{Limit: lease.LimitSessions, Most: 2, FreeAt: start.Add(time.Minute + lease.SessionIdle)}, err)
	_, err = g.Acquire(start, lease.Request{TTL: time.Minute, Holder: "h", Session: "a"})
	assert.NoError(t, err, "an existing session")
	_, err = g.Acquire(start, lease.Request{TTL: time.Minute, Holder: "another", Session: "s"})
	assert.NoError(t, err, "another holder")
}
