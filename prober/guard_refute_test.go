package prober

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

func always(time.Duration) bool { return true }
func never(time.Duration) bool  { return false }

// A firewall is in the way of direct checks alone. Proxies say so, few or many, and a
// dead one is told of soon.
func TestAFirewallHidesNoDeadProxy(t *testing.T) {
	for _, n := range []int{5, 9, 40} {
		c := guarded(t, usual())
		fleet := c.spread(n, nil)
		c.live(4*time.Minute, never, through(always, map[string]probe.Reason{"p0": probe.ReasonConnectTimeout}))
		assert.True(t, c.engine.guard.sites[site443].void, "%d proxies", n)
		assert.Equal(t, unhealthy, c.verdict(fleet[0]), "%d proxies", n)
		assert.Equal(t, 1, c.count(unhealthy))
	}
}

// One that drops makes each check take longer than the time between two.
func TestAFirewallThatDropsHidesNoDeadProxy(t *testing.T) {
	c := guarded(t, usual())
	fleet := c.spread(40, nil)
	s := c.engine.guard.site(site443, c.engine.targets[keyOf(fleet[0])], c.clock.Now())
	var ends time.Duration
	c.engine.guard.cfg.FleetShare = 0
	result := through(always, map[string]probe.Reason{"p0": probe.ReasonConnectTimeout})
	c.live(4*time.Minute, never, func(at time.Duration, name string) probe.Result {
		if s.checking && at >= ends {
			c.engine.checked(s, bad(probe.ReasonDialTimeout))
		}
		if !s.checking {
			ends = at + 5*time.Second
			s.begin(c.clock.Now())
		}
		return result(at, name)
	})
	assert.True(t, s.void)
	assert.Equal(t, unhealthy, c.verdict(fleet[0]))
}

// A target that answers for a moment in an outage is down all the same.
func TestAMomentsAnswerIsNoEndOfAnOutage(t *testing.T) {
	for after := time.Duration(0); after < 5*time.Second; after += 250 * time.Millisecond {
		for _, answers := range []time.Duration{500 * time.Millisecond, 750 * time.Millisecond, time.Second} {
			c := guarded(t, usual())
			c.spread(300, nil)
			moment := 90*time.Second + after
			up := func(at time.Duration) bool { return at < time.Minute || at >= moment && at < moment+answers }
			c.live(2*time.Minute, up, through(up, nil))
			require.False(t, c.engine.guard.sites[site443].void, "%s after %s", answers, after)
		}
	}
}

// What began while the target was down, and ends when it is known to be back, fails
// for what was.
func TestProbesThatOutliveAnOutage(t *testing.T) {
	for _, n := range []int{9, 300} {
		c := guarded(t, usual())
		c.spread(n, func(hc *v1alpha1.HealthCheck) { hc.FailureThreshold = 1 })
		type flight struct {
			job
			ends time.Duration
		}
		var flying []flight
		for at := time.Duration(0); at < 4*time.Minute; at += 250 * time.Millisecond {
			c.up = at < time.Minute || at >= 3*time.Minute
			for len(flying) > 0 && flying[0].ends <= at {
				c.engine.finish(flying[0].job, fails(probe.ReasonConnectTimeout))
				flying = flying[1:]
			}
			for _, j := range c.handed() {
				if c.up {
					c.engine.finish(j, works())
				} else {
					flying = append(flying, flight{j, at + 5*time.Second})
				}
			}
			c.step(time.Millisecond)
			c.checks()
			c.step(249 * time.Millisecond)
			require.Equal(t, n, c.count(healthy), at)
		}
	}
}

// The prober's own network breaks while the target is down: the fleet is held for
// that as without it.
func TestATargetThatIsDownDoesNotDisarmTheFleetRule(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(40)
	c.all(works())
	c.up = false
	for range 2 {
		c.all(fails(probe.ReasonUpstreamFailed))
	}
	for range 5 {
		c.all(fails(probe.ReasonDialTimeout))
	}
	assert.Equal(t, 40, c.count(healthy))
	assert.Equal(t, 1.0, c.down(causeFleet))
}

// Who is accused for two targets, of which one is down, is not condemned when the
// other works: a failure less is left.
func TestAnAccusationNeedsAllItsFailures(t *testing.T) {
	c := guarded(t, usual())
	p := c.spread(1, func(hc *v1alpha1.HealthCheck) { hc.FailureThreshold = 2 })[0]
	x := c.engine.targets[keyOf(p)]
	s := c.engine.guard.site(site443, x, c.clock.Now())
	c.failMeanwhile(s, p)
	c.step(time.Second)
	r := fails(probe.ReasonConnectTimeout)
	r.Target = "b.invalid:443"
	c.engine.record(x, 1, r)
	require.NotNil(t, x.accused)
	c.step(time.Second)
	c.engine.checked(s, bad(probe.ReasonConnectTimeout))
	other := c.engine.guard.sites[r.Target]
	other.begin(c.clock.Now())
	c.engine.checked(other, good(time.Millisecond))
	assert.Equal(t, healthy, c.verdict(p))
}

// With two probe URLs, one of them behind a firewall, outages of a third target that
// it does not use hide no dead proxy.
func TestATargetThatIsNotCheckedMixesNothingUp(t *testing.T) {
	c := guarded(t, usual())
	fleet := c.spread(40, func(hc *v1alpha1.HealthCheck) {
		hc.FailureThreshold = 6
		hc.ProbeURLs = []v1alpha1.ProbeURL{"https://a.invalid:443/", "https://b.invalid:443/"}
	})
	for i := 3; i < len(fleet); i += 4 {
		hc := &c.engine.targets[keyOf(fleet[i])].order.healthCheck
		hc.ProbeURL, hc.ProbeURLs = "https://c.invalid:443/", nil
	}
	f := flap{30 * time.Second, 15 * time.Second}
	c.engine.guard.check = func(_ context.Context, hc v1alpha1.HealthCheck) probe.Result {
		if hc.ProbeURL == "https://b.invalid:443/" || hc.ProbeURL == "https://c.invalid:443/" && c.up {
			return good(time.Millisecond)
		}
		return bad(probe.ReasonDialFailed)
	}
	byName := map[string]*target{}
	for _, x := range c.engine.targets {
		byName[x.key.Name] = x
	}
	c.live(20*time.Minute, f.up, func(at time.Duration, name string) probe.Result {
		u, err := url.Parse(byName[name].asked)
		require.NoError(t, err)
		r := works()
		if name == "p0" || u.Host == "c.invalid:443" && !f.up(at) {
			r = fails(probe.ReasonConnectTimeout)
		}
		r.Target = u.Host
		return r
	})
	assert.Equal(t, unhealthy, c.verdict(fleet[0]))
	assert.Equal(t, 1, c.count(unhealthy))
}

// Outages of the prober's network take nothing back of what failed long before.
func TestOutagesOfTheFleetHideNoDeadProxy(t *testing.T) {
	for _, reason := range []probe.Reason{probe.ReasonDialTimeout, probe.ReasonConnectTimeout} {
		for _, period := range []time.Duration{80 * time.Second, 2 * time.Minute, 150 * time.Second} {
			c := guarded(t, usual())
			fleet := c.spread(40, func(hc *v1alpha1.HealthCheck) { hc.FailureThreshold = 6 })
			f := flap{period, 20 * time.Second}
			c.live(20*time.Minute, always, func(at time.Duration, name string) probe.Result {
				switch {
				case name == "p0":
					return fails(reason)
				case !f.up(at):
					return fails(probe.ReasonDialTimeout)
				}
				return works()
			})
			assert.Equal(t, unhealthy, c.verdict(fleet[0]), "%s %s", reason, period)
			assert.Equal(t, 1, c.count(unhealthy), "%s %s", reason, period)
		}
	}
}
