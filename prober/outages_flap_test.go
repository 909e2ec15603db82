package prober

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/health"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/outage"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// spread adds n Healthy proxies whose probes lie evenly in the interval.
func (c *control) spread(n int, change func(hc *v1alpha1.HealthCheck)) []*v1alpha1.ProxyProbe {
	c.t.Helper()
	out := make([]*v1alpha1.ProxyProbe, n)
	for i := range out {
		c.runner.jitter = func(d time.Duration) time.Duration { return d * time.Duration(i) / time.Duration(n) }
		out[i] = judged(fmt.Sprint("p", i), healthy)
		if change != nil {
			change(out[i].Spec.HealthCheck)
		}
		require.NoError(c.t, c.runner.Add(out[i]))
	}
	return out
}

// flap is a target that is down at the end of each period.
type flap struct{ period, down time.Duration }

func (f flap) up(at time.Duration) bool { return at%f.period < f.period-f.down }

// live advances the clock. Probes take no time and return result. The target is up while
// up returns true.
func (c *control) live(span time.Duration, up func(at time.Duration) bool, result func(at time.Duration, name string) probe.Result) {
	c.t.Helper()
	const step = 250 * time.Millisecond
	for at := time.Duration(0); at < span; at += step {
		c.up = up(at)
		for _, j := range c.handed() {
			c.runner.finish(j, result(at, j.key.Name))
		}
		c.step(time.Millisecond)
		c.checks()
		c.step(step - time.Millisecond)
	}
}

// through returns results of probes: those of dead proxies fail with their reason, the
// others work while the target is up.
func through(up func(at time.Duration) bool, dead map[string]probe.Reason) func(time.Duration, string) probe.Result {
	return func(at time.Duration, name string) probe.Result {
		switch reason, isDead := dead[name]; {
		case isDead:
			return fails(reason)
		case up(at):
			return works()
		}
		return fails(probe.ReasonUpstreamFailed)
	}
}

// A flapping target hides no dead proxy, whatever its reason and whatever the period of
// the outages. A proxy that is only probed while the target is down turns Unknown.
func TestFlappingTargetHidesNoDeadProxy(t *testing.T) {
	for _, reason := range []probe.Reason{probe.ReasonDialTimeout, probe.ReasonProxyAuthRefused, probe.ReasonConnectTimeout, probe.ReasonTLSHandshakeFailed} {
		for _, seconds := range [][2]int{{30, 10}, {37, 10}, {37, 15}, {47, 10}, {47, 20}, {60, 20}, {53, 35}} {
			f := flap{time.Duration(seconds[0]) * time.Second, time.Duration(seconds[1]) * time.Second}
			c := guarded(t, usual())
			fleet := c.spread(20, nil)
			c.live(time.Hour, f.up, through(f.up, map[string]probe.Reason{"p0": reason}))
			assert.NotEqual(t, healthy, c.verdict(fleet[0]), "%s %v", reason, f)
			assert.LessOrEqual(t, c.count(unhealthy), 1, "%s %v", reason, f)
		}
	}
}

// A flapping target that the proxy does not use hides no dead proxy either.
func TestAnotherFlappingTargetHidesNoDeadProxy(t *testing.T) {
	const url, target = "https://other.invalid/", "other.invalid:443"
	for _, period := range []time.Duration{20 * time.Second, 30 * time.Second, time.Minute} {
		c := guarded(t, usual())
		fleet := c.spread(20, nil)
		c.runner.monitors[keyOf(fleet[0])].spec.healthCheck.ProbeURL = url
		c.reachable = func(asked string) bool { return c.up || asked == url }
		f := flap{period, period / 2}
		c.live(time.Hour, f.up, func(at time.Duration, name string) probe.Result {
			r := through(f.up, map[string]probe.Reason{"p0": probe.ReasonConnectTimeout})(at, name)
			if name == "p0" {
				r.Target = target
			}
			return r
		})
		assert.Equal(t, unhealthy, c.verdict(fleet[0]), period)
		assert.Equal(t, 1, c.count(unhealthy), period)
	}
}

// Half of a fleet is dead, and outages of the target make the other half fail too. Its
// verdicts are held for five minutes, then they flip.
func TestHalfDeadFleetWithFlappingTargetIsDetected(t *testing.T) {
	for _, threshold := range []int32{3, 5, 6} {
		c := guarded(t, usual())
		fleet := c.spread(40, func(hc *v1alpha1.HealthCheck) { hc.FailureThreshold = threshold })
		dead := map[string]bool{}
		for i, n := range rand.New(rand.NewPCG(1, 7)).Perm(len(fleet)) {
			dead[fleet[i].Name] = n < 18
		}
		const ill, begins = 40 * time.Second, 80 * time.Second
		up := func(at time.Duration) bool {
			return at < begins || (at-begins)%(29*time.Second) >= 6*time.Second
		}
		c.live(time.Hour, up, func(at time.Duration, name string) probe.Result {
			if dead[name] && at > ill {
				return fails(probe.ReasonConnectTimeout)
			}
			return through(up, nil)(at, name)
		})
		for _, p := range fleet {
			assert.Equal(t, dead[p.Name], c.verdict(p) == unhealthy, "%s, threshold %d", p.Name, threshold)
		}
		assert.Zero(t, c.fleetHeld())
	}
}

// Probes reach a target that is back before the next direct check does. That does not
// contradict direct checks, and the next outage holds verdicts as well.
func TestProxiesReachTheTargetBeforeTheDirectCheck(t *testing.T) {
	up := func(at time.Duration) bool {
		return at < 2*time.Minute || at > 181*time.Second && at < 10*time.Minute || at > 22*time.Minute
	}
	for _, n := range []int{9, 300} { // too few for a fleet, and many
		c := guarded(t, usual())
		fleet := c.spread(n, nil)
		c.live(22*time.Minute, up, through(up, nil))
		assert.Equal(t, n, c.count(healthy))
		assert.Len(t, c.writes(fleet)[health.Announcement], min(n, outage.MaxAnnounced), "the second outage is announced like the first")
	}
}

// The URLs of two probe targets.
const (
	urlA = "https://a.invalid/"
	urlB = "https://b.invalid/"
)

// fail has the proxy fail with the probe target of a URL.
func (c *control) fail(p *v1alpha1.ProxyProbe, url string) {
	c.t.Helper()
	m, r := c.monitor(p), fails(probe.ReasonConnectTimeout)
	m.plans.url = url
	r.Target = strings.TrimSuffix(strings.TrimPrefix(url, "https://"), "/") + ":443"
	c.runner.record(m, 1, r)
}

// startCheckOf starts a direct check, which another proxy's failure causes.
func (c *control) startCheckOf(url string, other *v1alpha1.ProxyProbe) {
	c.t.Helper()
	c.fail(other, url)
	c.step(time.Millisecond)
	c.startChecks()
	require.Len(c.t, c.running, 1)
	c.step(time.Millisecond)
}

// A flip that waits for a check is dropped when another check of its target fails,
// and not flipped by a later check that shows nothing.
func TestPendingFlipEndsWhenItsTargetIsDown(t *testing.T) {
	c := guarded(t, usual())
	c.workedBefore("a.invalid:443")
	fleet := c.spread(12, func(hc *v1alpha1.HealthCheck) { hc.FailureThreshold = 1 })
	c.startCheckOf(urlA, fleet[0])
	c.fail(fleet[1], urlA)
	c.endCheck(urlA, bad(probe.ReasonConnectTimeout))
	assert.Equal(t, 1.0, c.targetsDown())
	c.step(checkPause)
	c.startChecks()
	c.endCheck(urlA, unsure(probe.ReasonResolverFailed))
	assert.Equal(t, healthy, c.verdict(fleet[1]))
	assert.Zero(t, c.monitor(fleet[1]).health.Failures)
}

// With several probe URLs a failure that no check has explained yet is dropped when
// its target turns out to be down, although the proxy failed with another one since.
func TestFailureIsDroppedWithItsOwnTarget(t *testing.T) {
	c := guarded(t, usual())
	c.workedBefore("a.invalid:443")
	fleet := c.spread(2, nil)
	p := fleet[0]
	c.startCheckOf(urlA, fleet[1])
	c.fail(p, urlA)
	c.step(time.Second)
	c.fail(p, urlB)
	c.step(time.Second)
	c.startChecks()
	c.endCheck(urlB, good(time.Millisecond))
	require.EqualValues(t, 2, c.monitor(p).health.Failures)
	c.endCheck(urlA, bad(probe.ReasonConnectTimeout))
	assert.Zero(t, c.monitor(p).health.Failures)
	assert.Zero(t, c.monitor(p).health.ProxyFailures)
}

func always(time.Duration) bool { return true }
func never(time.Duration) bool  { return false }

// A firewall blocks direct checks only. The probes of few or many proxies contradict them,
// and a dead proxy is detected soon.
func TestFirewallForDirectChecksHidesNoDeadProxy(t *testing.T) {
	for _, n := range []int{5, 9, 40} {
		c := guarded(t, usual())
		fleet := c.spread(n, nil)
		c.live(4*time.Minute, never, through(always, map[string]probe.Reason{"p0": probe.ReasonConnectTimeout}))
		assert.True(t, c.target(target443).ChecksIgnored, "%d proxies", n)
		assert.Equal(t, unhealthy, c.verdict(fleet[0]), "%d proxies", n)
		assert.Equal(t, 1, c.count(unhealthy))
	}
}

// A firewall that drops packets makes each check take longer than the check interval.
func TestDirectChecksThatTimeOutHideNoDeadProxy(t *testing.T) {
	cfg := usual()
	cfg.FleetShare = 0
	c := guarded(t, cfg)
	fleet := c.spread(40, nil)
	c.takes = 5 * time.Second
	c.live(4*time.Minute, never, through(always, map[string]probe.Reason{"p0": probe.ReasonConnectTimeout}))
	assert.True(t, c.target(target443).ChecksIgnored)
	assert.Equal(t, unhealthy, c.verdict(fleet[0]))
}

// A target that answers for a moment during an outage is still down.
func TestMomentaryResponseDoesNotContradictDirectChecks(t *testing.T) {
	for after := time.Duration(0); after < 5*time.Second; after += 250 * time.Millisecond {
		for _, answers := range []time.Duration{500 * time.Millisecond, 750 * time.Millisecond, time.Second} {
			c := guarded(t, usual())
			c.spread(300, nil)
			moment := 90*time.Second + after
			up := func(at time.Duration) bool { return at < time.Minute || at >= moment && at < moment+answers }
			c.live(2*time.Minute, up, through(up, nil))
			require.False(t, c.target(target443).ChecksIgnored, "%s after %s", answers, after)
		}
	}
}

// Probes that started while the target was down may fail after it is back. Their failures
// are suppressed.
func TestProbesThatStartedInAnOutageAreSuppressed(t *testing.T) {
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
				c.runner.finish(flying[0].job, fails(probe.ReasonConnectTimeout))
				flying = flying[1:]
			}
			for _, j := range c.handed() {
				if c.up {
					c.runner.finish(j, works())
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

// The prober's own network breaks while the target is down: the fleet rule holds verdicts
// as it does without that.
func TestFleetRuleAppliesWhileATargetIsDown(t *testing.T) {
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
	assert.Equal(t, 1.0, c.fleetHeld())
}

// Failures with two targets reach the threshold, and one of the targets is down: a
// check of the other one that works does not flip the verdict, as a failure is missing.
func TestPendingFlipNeedsAllItsFailures(t *testing.T) {
	c := guarded(t, usual())
	c.workedBefore("a.invalid:443")
	fleet := c.spread(2, func(hc *v1alpha1.HealthCheck) { hc.FailureThreshold = 2 })
	p := fleet[0]
	c.startCheckOf(urlA, fleet[1])
	c.fail(p, urlA)
	c.step(time.Second)
	c.fail(p, urlB)
	require.Equal(t, 1, c.target("b.invalid:443").Pending)
	c.step(time.Second)
	c.endCheck(urlA, bad(probe.ReasonConnectTimeout))
	c.startChecks()
	c.endCheck(urlB, good(time.Millisecond))
	assert.Equal(t, healthy, c.verdict(p))
}

// With two probe URLs, one of them behind a firewall, outages of a third target that
// it does not use hide no dead proxy.
func TestTargetWithIgnoredChecksDoesNotMixFailures(t *testing.T) {
	c := guarded(t, usual())
	fleet := c.spread(40, func(hc *v1alpha1.HealthCheck) {
		hc.FailureThreshold = 6
		hc.ProbeURLs = []v1alpha1.ProbeURL{"https://a.invalid:443/", "https://b.invalid:443/"}
	})
	for i := 3; i < len(fleet); i += 4 {
		hc := &c.runner.monitors[keyOf(fleet[i])].spec.healthCheck
		hc.ProbeURL, hc.ProbeURLs = "https://c.invalid:443/", nil
	}
	f := flap{30 * time.Second, 15 * time.Second}
	c.reachable = func(asked string) bool {
		return asked == "https://b.invalid:443/" || asked == "https://c.invalid:443/" && c.up
	}
	byName := map[string]*monitor{}
	for _, x := range c.runner.monitors {
		byName[x.key.Name] = x
	}
	c.live(20*time.Minute, f.up, func(at time.Duration, name string) probe.Result {
		u, err := url.Parse(byName[name].plans.url)
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

// Outages of the prober's network keep the failures from long before.
func TestFleetOutagesHideNoDeadProxy(t *testing.T) {
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
