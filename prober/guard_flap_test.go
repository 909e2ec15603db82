package prober

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// spread adds n Healthy proxies whose probes lie evenly in the interval.
func (c *control) spread(n int, change func(hc *v1alpha1.HealthCheck)) []*v1alpha1.ProxyProbe {
	c.t.Helper()
	out := make([]*v1alpha1.ProxyProbe, n)
	for i := range out {
		c.engine.jitter = func(d time.Duration) time.Duration { return d * time.Duration(i) / time.Duration(n) }
		out[i] = judged(fmt.Sprint("p", i), healthy)
		if change != nil {
			change(out[i].Spec.HealthCheck)
		}
		require.NoError(c.t, c.engine.Add(out[i]))
	}
	return out
}

// flap is a target that is down at the end of each period.
type flap struct{ period, down time.Duration }

func (f flap) up(at time.Duration) bool { return at%f.period < f.period-f.down }

// live lets time pass. Probes take none and come out as result says, through a
// target that is up when up says so.
func (c *control) live(span time.Duration, up func(at time.Duration) bool, result func(at time.Duration, name string) probe.Result) {
	c.t.Helper()
	const step = 250 * time.Millisecond
	for at := time.Duration(0); at < span; at += step {
		c.up = up(at)
		for _, j := range c.handed() {
			c.engine.finish(j, result(at, j.key.Name))
		}
		c.step(time.Millisecond)
		c.checks()
		c.step(step - time.Millisecond)
	}
}

// through is what comes of probes through a target: those of the dead fail for their
// reason, the others as the target does.
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

// A target that comes and goes hides no dead proxy, whatever it fails with, and
// however the outages lie. Of whom is only ever probed while the target is down
// nothing is known at last.
func TestNoRhythmOfATargetHidesADeadProxy(t *testing.T) {
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

// Nor does one that it does not use.
func TestNoOtherTargetHidesADeadProxy(t *testing.T) {
	const url, target = "https://other.invalid/", "other.invalid:443"
	for _, period := range []time.Duration{20 * time.Second, 30 * time.Second, time.Minute} {
		c := guarded(t, usual())
		fleet := c.spread(20, nil)
		c.engine.targets[keyOf(fleet[0])].order.healthCheck.ProbeURL = url
		c.engine.guard.check = func(_ context.Context, hc v1alpha1.HealthCheck) probe.Result {
			if c.up || hc.ProbeURL == url {
				return good(time.Millisecond)
			}
			return bad(probe.ReasonDialFailed)
		}
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

// Half of a fleet is dead, and outages of the target make it look like the whole. It
// is held for its five minutes, and then told of.
func TestDeadProxiesThatKeepTheFleetHeldAreFound(t *testing.T) {
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
		assert.Zero(t, c.down(causeFleet))
	}
}

// Proxies see a target come back before the next direct check does. That is no proof
// against direct checks, and the next outage is one.
func TestProxiesThatSeeATargetComeBackFirst(t *testing.T) {
	up := func(at time.Duration) bool {
		return at < 2*time.Minute || at > 181*time.Second && at < 10*time.Minute || at > 22*time.Minute
	}
	for _, n := range []int{9, 300} { // too few for a fleet, and many
		c := guarded(t, usual())
		fleet := c.spread(n, nil)
		c.live(22*time.Minute, up, through(up, nil))
		assert.Equal(t, n, c.count(healthy))
		assert.Len(t, c.writes(fleet)[changeOfMark], min(n, mostMarks), "the second outage is told of like the first")
	}
}

// failMeanwhile has the proxy fail while a check of its target is under way.
func (c *control) failMeanwhile(s *site, p *v1alpha1.ProxyProbe) {
	s.begin(c.clock.Now())
	c.step(time.Millisecond)
	t := c.engine.targets[keyOf(p)]
	t.asked = v1alpha1.DefaultProbeURL
	c.engine.record(t, 1, fails(probe.ReasonConnectTimeout))
}

// Whoever fails while the check is under way that finds the target down is not
// accused any more, not even when the next check tells nothing.
func TestAnAccusationEndsWithItsTarget(t *testing.T) {
	c := guarded(t, usual())
	fleet := c.spread(12, func(hc *v1alpha1.HealthCheck) { hc.FailureThreshold = 1 })
	s := c.engine.guard.site(site443, c.engine.targets[keyOf(fleet[0])], c.clock.Now())
	c.failMeanwhile(s, fleet[1])
	c.engine.checked(s, bad(probe.ReasonConnectTimeout))
	assert.Equal(t, 1.0, c.down(causeDirect))
	c.step(time.Second)
	s.begin(c.clock.Now())
	c.engine.checked(s, unsure(probe.ReasonResolverFailed))
	assert.Equal(t, healthy, c.verdict(fleet[1]))
	assert.Zero(t, c.engine.targets[keyOf(fleet[1])].tally.failures)
}

// With several probe URLs a failure that nobody has looked into yet is forgotten when
// its target turns out to be down, although the proxy has failed with another since.
func TestAFailureIsItsOwnTargetsDoing(t *testing.T) {
	c := guarded(t, usual())
	p := c.spread(1, nil)[0]
	a, b := c.engine.targets[keyOf(p)], "b.invalid:443"
	s := c.engine.guard.site(site443, a, c.clock.Now())
	c.failMeanwhile(s, p)
	c.step(time.Second)
	r := fails(probe.ReasonConnectTimeout)
	r.Target = b
	c.engine.record(a, 1, r)
	other := c.engine.guard.sites[b]
	c.step(time.Second)
	other.begin(c.clock.Now())
	c.engine.checked(other, good(time.Millisecond))
	require.EqualValues(t, 2, a.tally.failures)
	c.engine.checked(s, bad(probe.ReasonConnectTimeout))
	assert.Zero(t, a.tally.failures)
	assert.Zero(t, a.tally.own)
}
