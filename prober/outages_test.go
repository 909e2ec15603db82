package prober

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/health"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/outage"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// The hooks detect by this reason that a verdict is held.
func TestProbeTargetDownReasonMatchesTheAPI(t *testing.T) {
	assert.EqualValues(t, v1alpha1.ReasonProbeTargetDown, probe.ReasonProbeTargetDown)
}

// The echo server stops: verdicts are kept, a few statuses and a metric show why, and
// when it is back the failures of the outage are dropped.
func TestTargetDownKeepsVerdicts(t *testing.T) {
	for _, reason := range []probe.Reason{probe.ReasonUpstreamFailed, probe.ReasonConnectTimeout, probe.ReasonTLSTimeout, probe.ReasonUnexpectedStatus, probe.ReasonWrongContent} {
		c := guarded(t, usual())
		fleet := c.fleet(100)
		c.all(works())
		assert.Empty(t, c.writes(fleet))
		c.up = false
		for range 20 {
			c.all(fails(reason))
		}
		assert.Equal(t, 100, c.count(healthy), reason)
		assert.Equal(t, 1.0, c.targetsDown())
		written := c.writes(fleet)
		require.Len(t, written, 1)
		marks := written[health.Announcement]
		assert.Len(t, marks, outage.MaxAnnounced, "not one for each proxy")
		assert.Equal(t, healthy, marks[0].Verdict)
		assert.Equal(t, "ProbeTargetDown", marks[0].Reason)
		assert.Equal(t, "verdicts are held: the direct check of target.invalid:443 fails too: not fine", marks[0].Message)
		assert.Equal(t, int64(40), *marks[0].LatencyMillis)

		c.up = true
		c.all(fails(reason)) // some still fail while it comes back
		c.step(30 * time.Second)
		assert.Zero(t, c.targetsDown())
		c.all(fails(reason))
		c.all(works())
		assert.Equal(t, 100, c.count(healthy))
		written = c.writes(fleet)
		assert.Len(t, written[health.Announcement], outage.MaxAnnounced, "put right")
		assert.Equal(t, "ProbeSucceeded", written[health.Announcement][0].Reason)
		assert.Empty(t, c.writes(fleet))
	}
}

func TestFailuresCountAgainAfterAnOutage(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(20)
	c.all(works())
	c.up = false
	for range 5 {
		c.all(fails(probe.ReasonUpstreamFailed))
	}
	c.up = true
	c.all(fails(probe.ReasonUpstreamFailed))
	one := but("p7", probe.ReasonUpstreamFailed)
	c.each(one)
	c.each(one)
	assert.Equal(t, 20, c.count(healthy), "a full run, begun after the outage")
	c.each(one)
	assert.Equal(t, 1, c.count(unhealthy))
}

// The proxy dies while the target is down too.
func TestDeadProxyTurnsUnhealthyWhileTheTargetIsDown(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(20)
	c.all(works())
	c.up = false
	for range 6 { // its first failure may be attributed to the outage
		c.each(func(name string) probe.Result {
			if name == "p7" {
				return fails(probe.ReasonDialFailed)
			}
			return fails(probe.ReasonUpstreamFailed)
		})
	}
	assert.Equal(t, 1, c.count(unhealthy))
	assert.Equal(t, 19, c.count(healthy))
}

// A flip waits for a direct check that begins after the failure. Otherwise an outage
// would flip a verdict with a threshold of 1 before it is detected.
func TestFlipWaitsForADirectCheck(t *testing.T) {
	for _, up := range []bool{true, false} {
		c := guarded(t, usual())
		p := judged("a", healthy)
		p.Spec.HealthCheck.FailureThreshold = 1
		require.NoError(t, c.runner.Add(p))
		c.step(30 * time.Second)
		c.runner.finish(c.one(), works())
		c.checks()
		assert.Len(t, c.asked, 1, "while all is well, to know that it works")

		c.asked = nil
		c.step(30 * time.Second)
		c.up = up
		c.runner.finish(c.one(), fails(probe.ReasonConnectTimeout))
		assert.Equal(t, healthy, c.verdict(p))
		c.checks()
		assert.Equal(t, []string{"https://www.gstatic.com/generate_204"}, c.asked)
		if up {
			assert.Equal(t, unhealthy, c.verdict(p))
			st := c.write(p).status
			assert.Equal(t, "ConnectTimeout", st.Reason)
			assert.Equal(t, 1, c.pending[keyOf(p)])
		} else {
			assert.Equal(t, healthy, c.verdict(p))
			assert.Equal(t, "ProbeTargetDown", c.write(p).status.Reason, "every status of a small fleet is announced")
		}
	}
}

func TestProxyFailureNeedsNoDirectCheck(t *testing.T) {
	c := guarded(t, usual())
	p := judged("a", healthy)
	require.NoError(t, c.runner.Add(p))
	c.step(30 * time.Second)
	for range 3 {
		c.round(fails(probe.ReasonProxyAuthRefused))
	}
	assert.Equal(t, unhealthy, c.verdict(p))
	assert.Empty(t, c.asked)
}

// A firewall blocks the prober only: proxies reach the target, direct checks do not.
func TestContradictedDirectCheckIsIgnored(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(20)
	c.up = false
	one := func(name string) probe.Result {
		if name == "p7" {
			return fails(probe.ReasonConnectTimeout)
		}
		return works()
	}
	for range 6 {
		c.each(one)
	}
	assert.Equal(t, 1, c.count(unhealthy), "detected late")
	assert.Zero(t, c.targetsDown())
	asked := len(c.asked)
	c.up = true
	for range 3 {
		c.each(func(string) probe.Result { return fails(probe.ReasonConnectTimeout) })
	}
	assert.Greater(t, len(c.asked), asked)
	assert.False(t, c.target(target443).ChecksIgnored, "it works again")
}

func TestWithoutDirectChecksFailuresCount(t *testing.T) {
	c := guarded(t, outage.Config{})
	c.fleet(20)
	for range 3 {
		c.all(fails(probe.ReasonUpstreamFailed))
	}
	assert.Equal(t, 20, c.count(unhealthy))
	assert.Empty(t, c.asked)
}

// A dead fleet must not stay Healthy for ever, even while the target is down.
func TestVerdictTurnsUnknownAfterTargetHold(t *testing.T) {
	cfg := usual()
	cfg.TargetHold = 10 * time.Minute
	c := guarded(t, cfg)
	fleet := c.fleet(20)
	c.all(works())
	c.up = false
	for range 20 {
		c.all(fails(probe.ReasonUpstreamFailed))
	}
	assert.Equal(t, 20, c.count(healthy), "for the time of --target-hold")
	for range 3 {
		c.all(fails(probe.ReasonUpstreamFailed))
	}
	assert.Equal(t, 20, c.count(unknown))
	written := c.writes(fleet)
	require.Len(t, written[health.Flip], 20)
	assert.Equal(t, "ProbeTargetDown", written[health.Flip][0].Reason)
	c.up = true
	c.all(works())
	assert.Equal(t, 20, c.count(healthy))
}

// The number of direct checks in ten minutes, with the target up and down.
func TestDirectChecksAreThrottled(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(20)
	for range 20 {
		c.all(works())
	}
	assert.LessOrEqual(t, len(c.asked), 3, "few while all is well")
	c.up = false
	for range 20 { // ten minutes
		c.all(fails(probe.ReasonUpstreamFailed))
	}
	assert.LessOrEqual(t, len(c.asked), 120, "one in five seconds while it is down, whatever the fleet's size")
}

// While a flip waits for a check the proxy may be deleted, replaced or recover.
func TestPendingFlipOfADeletedProxyIsDropped(t *testing.T) {
	c := guarded(t, outage.Config{DirectCheck: true})
	fleet := c.fleet(4)
	for range 2 {
		c.each(func(string) probe.Result { return fails(probe.ReasonTLSTimeout) })
	}
	for _, j := range c.handed() {
		c.runner.finish(j, fails(probe.ReasonTLSTimeout))
	}
	require.Equal(t, 4, c.target(target443).Pending)
	require.NoError(t, c.runner.Delete(fleet[0]))
	moved := fleet[1].DeepCopy()
	moved.Spec.InstanceID, moved.Status = "instance-2", v1alpha1.ProxyProbeStatus{}
	require.NoError(t, c.runner.Update(moved))
	c.step(30 * time.Second)
	for _, j := range c.handed() {
		if j.key.Name == "p2" {
			c.runner.finish(j, works())
		} else {
			c.runner.finish(j, fails(probe.ReasonTLSTimeout))
		}
	}
	c.checks()
	assert.Equal(t, unhealthy, c.verdict(fleet[3]))
	assert.Equal(t, healthy, c.verdict(fleet[2]))
	assert.Empty(t, c.verdict(fleet[1]))
	assert.Len(t, c.runner.monitors, 3)
}

func TestIdleTargetsAreEvicted(t *testing.T) {
	c := guarded(t, usual())
	p := c.fleet(1)[0]
	for i := range 50 {
		r := fails(probe.ReasonUpstreamFailed)
		r.Target = fmt.Sprintf("site-%d.invalid:443", i)
		c.all(r)
		c.all(works())
		c.step(outage.TargetIdle)
		for _, j := range c.handed() {
			c.runner.finish(j, works())
		}
	}
	assert.LessOrEqual(t, len(c.runner.outage.Targets()), 2)
	assert.Equal(t, healthy, c.verdict(p))
}

// A target that is down and that no ProxyProbe names any more must not alert for ever.
func TestIdleTargetThatIsDownIsEvicted(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(20)
	c.all(works())
	c.up = false
	c.all(fails(probe.ReasonUpstreamFailed))
	require.Equal(t, 1.0, c.targetsDown())
	elsewhere := works()
	elsewhere.Target = "new.invalid:443" // every probeURL was edited
	for range 3 * outage.TargetIdle / (30 * time.Second) / 2 {
		for _, j := range c.handed() {
			c.runner.finish(j, elsewhere)
		}
		c.step(30 * time.Second)
	}
	assert.Zero(t, c.targetsDown())
	assert.NotContains(t, c.runner.outage.Targets(), target443)
}

func TestFleetHoldEndsWhenTheFleetIsDeleted(t *testing.T) {
	c := guarded(t, usual())
	fleet := c.fleet(20)
	c.all(fails(probe.ReasonDialTimeout))
	c.all(fails(probe.ReasonDialTimeout))
	require.Equal(t, 1.0, c.fleetHeld())
	for _, p := range fleet {
		require.NoError(t, c.runner.Delete(p))
	}
	c.step(time.Minute)
	c.none()
	assert.Zero(t, c.fleetHeld())
}

// A standby reports no target as down, and makes no direct checks.
func TestStandbyEndsOutageHolds(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(20)
	c.all(works())
	c.up = false
	c.all(fails(probe.ReasonUpstreamFailed))
	require.Equal(t, 1.0, c.targetsDown())
	asked := len(c.asked)
	c.step(checkPause)
	c.startChecks()
	require.Len(t, c.running, 1)
	c.runner.standDown()
	assert.Zero(t, c.targetsDown())
	c.endCheck(v1alpha1.DefaultProbeURL, bad(probe.ReasonDialFailed))
	c.step(time.Minute)
	c.checks()
	assert.Zero(t, c.targetsDown())
	assert.Len(t, c.asked, asked+1)
}

// Direct checks run concurrently with probes, and end with them.
func TestDirectChecksRunOnTheClock(t *testing.T) {
	down := make(chan struct{})
	r := rigWith(t, runnerConfig{workers: 4, rules: usual(), direct: func(ctx context.Context, _ v1alpha1.HealthCheck) probe.Result {
		select {
		case <-down:
			return bad(probe.ReasonDialFailed)
		case <-ctx.Done():
			return unsure(probe.ReasonCanceled)
		}
	}})
	r.runner.outage.Announced("the direct check of "+target443+" fails too: not fine", r.clock.Now())
	stop := running(t, r, func(context.Context, job) probe.Result { return fails(probe.ReasonUpstreamFailed) })
	require.NoError(t, r.runner.Add(judged("a", healthy)))
	close(down)
	stepUntilTrue(t, r, func() bool {
		return testutil.ToFloat64(r.runner.metrics.targetDown) == 1
	})
	stop()
}

// A prober that starts while the target is down keeps verdicts, and corrects the
// announcements of its predecessor after the outage.
func TestRestartDuringAnOutageKeepsVerdicts(t *testing.T) {
	c := guarded(t, usual())
	c.up = false
	marked, plain := judged("marked", healthy), judged("plain", healthy)
	marked.Status.Reason = "ProbeTargetDown"
	marked.Status.Message = "verdicts are held: the direct check of " + target443 + " fails too: not fine"
	for _, p := range []*v1alpha1.ProxyProbe{marked, plain} {
		require.NoError(t, c.runner.Add(p))
	}
	c.step(30 * time.Second)
	for range 8 {
		c.all(fails(probe.ReasonUpstreamFailed))
	}
	assert.Equal(t, 2, c.count(healthy))
	c.up = true
	c.all(fails(probe.ReasonUpstreamFailed))
	c.all(works())
	written := c.writes([]*v1alpha1.ProxyProbe{marked, plain})
	require.Contains(t, written, health.Announcement)
	for _, st := range written[health.Announcement] {
		assert.Equal(t, "ProbeSucceeded", st.Reason)
		assert.Equal(t, healthy, st.Verdict)
	}
	c.nothingToWrite(marked)
	c.nothingToWrite(plain)
}

// The network of the prober or of a provider breaks: all proxies fail while the target
// works.
func TestFleetFailureHoldsVerdictsForFleetHold(t *testing.T) {
	c := guarded(t, usual())
	fleet := c.fleet(40)
	c.all(works())
	most := func(name string) probe.Result {
		if len(name) == 2 { // p0 to p9
			return works()
		}
		return fails(probe.ReasonDialTimeout)
	}
	for range 8 {
		c.each(most)
	}
	assert.Equal(t, 40, c.count(healthy))
	assert.Equal(t, 1.0, c.fleetHeld())
	marks := c.writes(fleet)[health.Announcement]
	require.Len(t, marks, outage.MaxAnnounced)
	assert.Contains(t, marks[0].Message, "30 of 40 proxies do not answer")

	for range 4 { // five minutes are over
		c.each(most)
	}
	assert.Equal(t, 30, c.count(unhealthy), "a dead fleet is detected")
	for range 4 {
		c.each(most)
	}
	assert.Zero(t, c.fleetHeld())
}

func TestFleetThatRecoversKeepsVerdicts(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(40)
	c.all(works())
	for range 6 {
		c.all(fails(probe.ReasonDialTimeout))
	}
	c.all(works())
	assert.Equal(t, 40, c.count(healthy))
	c.all(works())
	assert.Zero(t, c.fleetHeld())
	for range 2 {
		c.all(fails(probe.ReasonDialTimeout))
	}
	assert.Equal(t, 40, c.count(healthy), "the failures of the hold are dropped")
}

func TestSmallFleetIsNotHeld(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(outage.MinFleet - 1)
	c.all(works())
	for range 3 {
		c.all(fails(probe.ReasonDialTimeout))
	}
	assert.Equal(t, outage.MinFleet-1, c.count(unhealthy))
}

// but returns results of a fleet in which one proxy fails.
func but(name string, reason probe.Reason) func(string) probe.Result {
	return func(other string) probe.Result {
		if other == name {
			return fails(reason)
		}
		return works()
	}
}

// outage is an outage of the target for some rounds.
func (c *control) outage(rounds int) {
	c.up = false
	for range rounds {
		c.all(fails(probe.ReasonUpstreamFailed))
	}
	c.up = true
	c.step(checkPause)
	c.checks()
}

// The target did not cause the failures before its outage.
func TestTargetOutageKeepsEarlierFailuresOfADeadProxy(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(20)
	c.all(works())
	c.each(but("p7", probe.ReasonConnectTimeout))
	c.each(but("p7", probe.ReasonConnectTimeout))
	c.outage(5)
	assert.Zero(t, c.targetsDown())
	assert.Equal(t, 20, c.count(healthy))
	c.each(but("p7", probe.ReasonConnectTimeout))
	assert.Equal(t, 1, c.count(unhealthy), "its third")
	assert.Equal(t, 19, c.count(healthy))
}

// A target with repeated outages hides no dead proxy, and turns no working one Unhealthy.
func TestRepeatedOutagesHideNoDeadProxy(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(20)
	for range 3 {
		c.each(but("p7", probe.ReasonTLSHandshakeFailed))
		c.outage(1)
	}
	assert.Equal(t, 1, c.count(unhealthy))
	for range 10 {
		c.each(but("p7", probe.ReasonTLSHandshakeFailed))
		c.outage(1)
	}
	assert.Equal(t, 1, c.count(unhealthy))
	assert.Equal(t, 19, c.count(healthy))
}

// One success ends a run of failures, even if they are attributed to the proxy.
func TestSuccessResetsAttributedFailures(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(20)
	c.each(but("p7", probe.ReasonConnectTimeout))
	c.each(but("p7", probe.ReasonConnectTimeout))
	c.all(works())
	c.outage(2)
	c.each(but("p7", probe.ReasonConnectTimeout))
	c.each(but("p7", probe.ReasonConnectTimeout))
	assert.Equal(t, 20, c.count(healthy))
}

// While the fleet is held a direct check that works proves nothing: the network between
// prober and proxies may be broken. Failures that were attributed before stay so.
func TestFleetHoldAttributesNoFailures(t *testing.T) {
	c := guarded(t, usual())
	fleet := c.fleet(20)
	c.each(but("p7", probe.ReasonConnectTimeout))
	for range 5 {
		c.all(fails(probe.ReasonConnectTimeout))
	}
	assert.Equal(t, 1.0, c.fleetHeld())
	assert.Equal(t, 20, c.count(healthy))
	both := func(name string) probe.Result {
		if name == "p8" {
			name = "p7"
		}
		return but("p7", probe.ReasonConnectTimeout)(name)
	}
	c.each(both)
	c.each(both)
	assert.Zero(t, c.fleetHeld(), "it is over")
	assert.Equal(t, 20, c.count(healthy))
	c.each(both)
	assert.Equal(t, unhealthy, c.verdict(fleet[7]))
	assert.Equal(t, healthy, c.verdict(fleet[8]), "it failed in the outage, and twice since")
}
