package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

func TestCooldownIsExtendedAndNeverShortened(t *testing.T) {
	g, k := small(1)
	uid := testOffer(0).ProxyUID
	for _, minutes := range []int{5, 9, 7} {
		g.PutCooldown(start, Cooldown{uid, "a", start.Add(time.Duration(minutes) * time.Minute)})
	}
	want := []lease.Cooldown{{Target: "a", Until: start.Add(9 * time.Minute)}}
	assert.Equal(t, want, g.Cooldowns(start, uid))
	assert.Len(t, k.cooldowns, 1)
	g.PutCooldown(start, Cooldown{uid, "b", start})
	assert.Equal(t, want, g.Cooldowns(start, uid), "one that has ended")
	require.NoError(t, g.Check())
}

func TestCooldownsAreListedByTarget(t *testing.T) {
	g, _ := small(1)
	uid := testOffer(0).ProxyUID
	for _, target := range []string{"b", "", "c", "a"} {
		g.PutCooldown(start, Cooldown{uid, target, start.Add(time.Minute)})
	}
	var targets []string
	for _, c := range g.Cooldowns(start, uid) {
		targets = append(targets, c.Target)
	}
	assert.Equal(t, []string{"", "a", "b", "c"}, targets)
	assert.True(t, g.EndCooldown(start, uid, "b"))
	assert.False(t, g.EndCooldown(start, uid, "b"))
	assert.Equal(t, 1, g.EndCooldowns(start, uid, "a"))
	assert.Equal(t, 2, g.EndCooldowns(start, uid, ""))
	assert.Empty(t, g.Cooldowns(start, uid))
	assert.Empty(t, g.targetCooldowns)
	require.NoError(t, g.Check())
}

// TestCooldownOutlivesItsProxy deletes the Proxy and creates it again.
func TestCooldownOutlivesItsProxy(t *testing.T) {
	g, _ := small(1)
	o := testOffer(0)
	g.PutCooldown(start, Cooldown{o.ProxyUID, "a", start.Add(time.Minute)})
	g.Offer(lease.Offers{Gone: []string{o.ProxyUID}})
	require.NoError(t, g.Check())
	g.Offer(lease.Offers{Changed: []*lease.Offer{o}})
	require.NoError(t, g.Check())
	_, err := g.Acquire(start, lease.Request{TTL: time.Minute, Target: "a"})
	var none *lease.NoMatchError
	require.ErrorAs(t, err, &none)
	assert.Equal(t, lease.Stats{Considered: 1, InCooldown: 1, CooldownEndsAt: start.Add(time.Minute)}, none.Stats)
}

func TestTargetLimits(t *testing.T) {
	g, _ := small(3)
	g.SetLimits(lease.Limits{Sessions: 1, TargetsPerProxy: 2, Targets: 3, Expired: 1})
	var leases []lease.Lease
	for range 3 {
		l, err := g.Acquire(start, lease.Request{TTL: time.Hour})
		require.NoError(t, err)
		leases = append(leases, l)
	}
	report := func(after time.Duration, l lease.Lease, target string) error {
		return g.Report(start.Add(after), l.ID, lease.Report{Result: lease.ResultBanned, Target: target})
	}
	require.NoError(t, report(0, leases[0], "a"))
	require.NoError(t, report(time.Second, leases[0], "b"))
	ends := start.Add(10 * time.Minute)
	perProxy := &lease.LimitError{Limit: lease.LimitTargetsPerProxy, Most: 2, FreeAt: ends}
	require.Equal(t, perProxy, report(2*time.Second, leases[0], "c"))
	require.NoError(t, report(2*time.Second, leases[1], "c"))
	all := &lease.LimitError{Limit: lease.LimitTargets, Most: 3, FreeAt: ends}
	require.Equal(t, all, report(3*time.Second, leases[2], "d"))
	require.NoError(t, report(3*time.Second, leases[0], "a"), "an extension")
	require.NoError(t, g.Report(start.Add(3*time.Second), leases[2].ID, lease.Report{Result: lease.ResultProxyTimeout}), "for all targets")
	require.NoError(t, g.Check())
	g.EndCooldowns(start.Add(4*time.Second), leases[1].Instance.ProxyUID, "")
	require.NoError(t, report(4*time.Second, leases[2], "d"))
}
