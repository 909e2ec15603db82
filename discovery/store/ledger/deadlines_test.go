package ledger

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

func TestDeadlinesPassInOrder(t *testing.T) {
	var ds deadlines
	gs := groups{}
	const n = 200
	var all []*cooldown
	for _, i := range rand.Perm(n) {
		c := &cooldown{target: []string{"", "a"}[i%2]}
		var group *timeHeap
		if c.target != "" {
			group = gs.group([]string{"x", "y"}[i/2%2])
		}
		ds.add(&c.deadline, c, start.Add(time.Duration(i)*time.Second), group)
		all = append(all, c)
	}
	assert.Equal(t, n/2, ds[ofCooldown].Len())
	assert.Equal(t, n/2, ds[ofTargetCooldown].Len())
	for _, c := range all[:n/2] {
		ds.move(&c.deadline, start.Add(time.Duration(rand.IntN(n))*time.Second))
	}
	for _, h := range ds {
		require.NoError(t, h.check())
	}
	for _, name := range []string{"x", "y"} {
		require.NoError(t, gs[name].check())
		size, first := gs.size(name)
		assert.Equal(t, n/4, size)
		for _, d := range gs[name].items {
			assert.False(t, d.at.Before(first))
		}
	}
	last := time.Time{}
	for d := ds.first(); d != nil; d = ds.first() {
		require.False(t, d.at.Before(last))
		last = d.at
		ds.remove(d)
	}
	for _, name := range []string{"x", "y", "none"} {
		gs.tidy(name)
		size, first := gs.size(name)
		assert.Zero(t, size)
		assert.True(t, first.IsZero())
	}
	assert.Empty(t, gs)
}

func TestKindFollowsFromTheOwner(t *testing.T) {
	for want, owner := range map[kind]any{
		ofLease: &activeLease{}, ofExpired: &expiredLease{}, ofSession: &session{}, ofCooldown: &cooldown{}, ofTargetCooldown: &cooldown{target: "a"},
	} {
		assert.Equal(t, want, (&deadline{owner: owner}).kind())
	}
}

// TestAdvanceRemovesWhatHasEnded takes the ledger from deadline to deadline: each one
// changes it, and nothing is left in the end.
func TestAdvanceRemovesWhatHasEnded(t *testing.T) {
	g := New(10*time.Minute, 0, nil)
	g.Offer(lease.Offers{Changed: []*lease.Offer{testOffer(1), testOffer(2)}})
	assert.True(t, g.Next().IsZero(), "an empty ledger has no deadline")
	l, err := g.Acquire(start, lease.Request{TTL: time.Minute, Session: "s", Holder: "h", Key: "k"})
	require.NoError(t, err)
	require.NoError(t, g.Report(start, l.ID, lease.Report{Result: lease.ResultConnectError}))
	require.NoError(t, g.Report(start, l.ID, lease.Report{Result: lease.ResultBanned, Target: "a"}))

	var passed []time.Duration
	for next := g.Next(); !next.IsZero(); next = g.Next() {
		before := g.Revision()
		g.Advance(next.Add(-time.Nanosecond))
		require.Equal(t, before, g.Revision(), "a nanosecond early")
		g.Advance(next)
		require.Greater(t, g.Revision(), before)
		require.NoError(t, g.Check())
		passed = append(passed, next.Sub(start))
	}
	assert.Equal(t, []time.Duration{
		30 * time.Second,                // the cooldown for all targets
		time.Minute,                     // the lease
		10 * time.Minute,                // the cooldown for one target
		time.Minute + lease.SessionIdle, // the session, and the last moment for a report
	}, passed)
	state := g.State()
	state.Fence = 0
	assert.Equal(t, State{}, state)
	assert.Empty(t, g.keys)
	assert.Empty(t, g.byFence.rows[g.byFence.gaps:])
}
