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
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// webhooks shows by this word that a verdict is held.
func TestTheHooksKnowThatVerdictsAreHeld(t *testing.T) {
	assert.EqualValues(t, v1alpha1.ReasonProbeTargetDown, probe.ReasonProbeTargetDown)
}

// The echo server stops: the fleet stays Ready, a few statuses and a metric say
// why, and when it is back nothing is held against anybody.
func TestATargetThatIsDownCondemnsNobody(t *testing.T) {
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
		assert.Equal(t, 1.0, c.down(causeDirect))
		written := c.writes(fleet)
		require.Len(t, written, 1)
		marks := written[changeOfMark]
		assert.Len(t, marks, mostMarks, "not one for each proxy")
		assert.Equal(t, healthy, marks[0].Verdict)
		assert.Equal(t, "ProbeTargetDown", marks[0].Reason)
		assert.Equal(t, "verdicts are held: the direct check of target.invalid:443 fails too: not fine", marks[0].Message)
		assert.Equal(t, int64(40), *marks[0].LatencyMillis)

		c.up = true
		c.all(fails(reason)) // some still fail while it comes back
		c.step(30 * time.Second)
		assert.Zero(t, c.down(causeDirect))
		c.all(fails(reason))
		c.all(works())
		assert.Equal(t, 100, c.count(healthy))
		written = c.writes(fleet)
		assert.Len(t, written[changeOfMark], mostMarks, "put right")
		assert.Equal(t, "ProbeSucceeded", written[changeOfMark][0].Reason)
		assert.Empty(t, c.writes(fleet))
	}
}

func TestFlipsResumeWhenTheTargetIsBack(t *testing.T) {
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

// A proxy that dies by itself while the target is down too.
func TestADeadProxyIsUnhealthyWhateverTheTargetDoes(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(20)
	c.all(works())
	c.up = false
	for range 6 { // its first failure may be taken for a part of the outage
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

// A flip waits for a direct check that begins after the failure, so that no proxy
// is the first victim of an outage, even with a threshold of 1.
func TestAFlipWaitsForADirectCheck(t *testing.T) {
	for _, up := range []bool{true, false} {
		c := guarded(t, usual())
		p := judged("a", healthy)
		p.Spec.HealthCheck.FailureThreshold = 1
		require.NoError(t, c.engine.Add(p))
		c.step(30 * time.Second)
		c.engine.finish(c.one(), works())
		c.checks()
		assert.Empty(t, c.asked, "nothing is suspected")

		c.step(30 * time.Second)
		c.up = up
		c.engine.finish(c.one(), fails(probe.ReasonConnectTimeout))
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
			assert.Equal(t, "ProbeTargetDown", c.write(p).status.Reason, "a small fleet shows it whole")
		}
	}
}

func TestAFailureOnTheWayToTheProxyWaitsForNothing(t *testing.T) {
	c := guarded(t, usual())
	p := judged("a", healthy)
	require.NoError(t, c.engine.Add(p))
	c.step(30 * time.Second)
	for range 3 {
		c.round(fails(probe.ReasonProxyAuthRefused))
	}
	assert.Equal(t, unhealthy, c.verdict(p))
	assert.Empty(t, c.engine.guard.sites)
}

// A firewall before the prober alone: proxies reach what the direct check does not.
func TestADirectCheckThatProxiesContradictIsIgnored(t *testing.T) {
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
	assert.Equal(t, 1, c.count(unhealthy), "late, but found")
	assert.Zero(t, c.down(causeDirect))
	asked := len(c.asked)
	c.up = true
	for range 3 {
		c.each(func(string) probe.Result { return fails(probe.ReasonConnectTimeout) })
	}
	assert.Greater(t, len(c.asked), asked)
	assert.False(t, c.engine.guard.sites[site443].void, "it works again")
}

func TestWithoutDirectChecksFailuresCount(t *testing.T) {
	c := guarded(t, GuardConfig{})
	c.fleet(20)
	for range 3 {
		c.all(fails(probe.ReasonUpstreamFailed))
	}
	assert.Equal(t, 20, c.count(unhealthy))
	assert.Empty(t, c.asked)
}

// A fleet that really dies must not be hidden for ever, whoever is to blame.
func TestWhatIsHeldForLongBecomesUnknown(t *testing.T) {
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
	require.Len(t, written[flip], 20)
	assert.Equal(t, "ProbeTargetDown", written[flip][0].Reason)
	c.up = true
	c.all(works())
	assert.Equal(t, 20, c.count(healthy))
}

// Probes and direct checks that a target sees in ten minutes, up and down.
func TestATargetIsAskedNoMoreThanNeeded(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(20)
	for range 20 {
		c.all(works())
	}
	assert.Empty(t, c.asked, "none while all is well")
	c.up = false
	for range 20 { // ten minutes
		c.all(fails(probe.ReasonUpstreamFailed))
	}
	assert.LessOrEqual(t, len(c.asked), 120, "one in five seconds while it is down, whatever the fleet's size")
}

// What waits for a check may be gone, another instance, or well by the time.
func TestWhoIsGoneIsNotJudged(t *testing.T) {
	c := guarded(t, GuardConfig{DirectCheck: true})
	fleet := c.fleet(4)
	for range 2 {
		c.each(func(string) probe.Result { return fails(probe.ReasonTLSTimeout) })
	}
	for _, j := range c.handed() {
		c.engine.finish(j, fails(probe.ReasonTLSTimeout))
	}
	require.Len(t, c.engine.guard.sites[site443].waiting, 4)
	require.NoError(t, c.engine.Delete(fleet[0]))
	moved := fleet[1].DeepCopy()
	moved.Spec.InstanceID, moved.Status = "instance-2", v1alpha1.ProxyProbeStatus{}
	require.NoError(t, c.engine.Update(moved))
	c.step(30 * time.Second)
	for _, j := range c.handed() {
		if j.key.Name == "p2" {
			c.engine.finish(j, works())
		} else {
			c.engine.finish(j, fails(probe.ReasonTLSTimeout))
		}
	}
	c.checks()
	assert.Equal(t, unhealthy, c.verdict(fleet[3]))
	assert.Equal(t, healthy, c.verdict(fleet[2]))
	assert.Empty(t, c.verdict(fleet[1]))
	assert.Len(t, c.engine.targets, 3)
}

func TestTargetsThatNobodyNamesAreForgotten(t *testing.T) {
	c := guarded(t, usual())
	p := c.fleet(1)[0]
	for i := range 50 {
		r := fails(probe.ReasonUpstreamFailed)
		r.Target = fmt.Sprintf("site-%d.invalid:443", i)
		c.all(r)
		c.all(works())
		c.step(siteIdle)
		for _, j := range c.handed() {
			c.engine.finish(j, works())
		}
	}
	assert.LessOrEqual(t, len(c.engine.guard.sites), 2)
	assert.Equal(t, healthy, c.verdict(p))
}

// What is down and is asked by nobody any more must not alert anybody for ever.
func TestATargetThatIsDownAndRetiredIsForgotten(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(20)
	c.up = false
	c.all(fails(probe.ReasonUpstreamFailed))
	require.Equal(t, 1.0, c.down(causeDirect))
	elsewhere := works()
	elsewhere.Target = "new.invalid:443" // every probeURL was edited
	for range 3 * siteIdle / (30 * time.Second) / 2 {
		for _, j := range c.handed() {
			c.engine.finish(j, elsewhere)
		}
		c.step(30 * time.Second)
	}
	assert.Zero(t, c.down(causeDirect))
	assert.Empty(t, c.engine.guard.sites)
}

func TestAFleetThatFailsAndIsDeletedIsForgotten(t *testing.T) {
	c := guarded(t, usual())
	fleet := c.fleet(20)
	c.all(fails(probe.ReasonConnectRefused))
	c.all(fails(probe.ReasonConnectRefused))
	require.Equal(t, 1.0, c.down(causeFleet))
	for _, p := range fleet {
		require.NoError(t, c.engine.Delete(p))
	}
	c.step(time.Minute)
	c.none()
	assert.Zero(t, c.down(causeFleet))
}

// A prober that stands by has nothing to say about targets, and asks none.
func TestWhoStandsByHoldsNothing(t *testing.T) {
	c := guarded(t, usual())
	c.fleet(20)
	c.up = false
	c.all(fails(probe.ReasonUpstreamFailed))
	require.Equal(t, 1.0, c.down(causeDirect))
	asked := len(c.asked)
	var site *site
	for _, s := range c.engine.guard.sites {
		site = s
	}
	site.begin(c.clock.Now()) // a check is under way
	c.engine.standDown()
	assert.Zero(t, c.down(causeDirect))
	c.engine.checked(site, bad(probe.ReasonDialFailed))
	c.step(time.Minute)
	c.checks()
	assert.Zero(t, c.down(causeDirect))
	assert.Len(t, c.asked, asked)
}

// The checks run beside the probes, and end with them.
func TestDirectChecksRunByTheClock(t *testing.T) {
	r := newRig(t, 4)
	r.engine.guard.cfg = usual()
	down := make(chan struct{})
	r.engine.guard.check = func(ctx context.Context, _ v1alpha1.HealthCheck) probe.Result {
		select {
		case <-down:
			return bad(probe.ReasonDialFailed)
		case <-ctx.Done():
			return unsure(probe.ReasonCanceled)
		}
	}
	stop := running(t, r, func(context.Context, job) probe.Result { return fails(probe.ReasonUpstreamFailed) })
	require.NoError(t, r.engine.Add(judged("a", healthy)))
	close(down)
	stepEngine(t, r, func() bool {
		return testutil.ToFloat64(r.engine.metrics.targetDown.WithLabelValues(causeDirect)) == 1
	})
	stop()
}

// A prober that begins while the target is down: verdicts are kept, and what its
// predecessor wrote about them is put right when it is over.
func TestARestartDuringAnOutageKeepsVerdicts(t *testing.T) {
	c := guarded(t, usual())
	c.up = false
	marked, plain := judged("marked", healthy), judged("plain", healthy)
	marked.Status.Reason = "ProbeTargetDown"
	for _, p := range []*v1alpha1.ProxyProbe{marked, plain} {
		require.NoError(t, c.engine.Add(p))
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
	require.Contains(t, written, changeOfMark)
	for _, st := range written[changeOfMark] {
		assert.Equal(t, "ProbeSucceeded", st.Reason)
		assert.Equal(t, healthy, st.Verdict)
	}
	c.nothingToWrite(marked)
	c.nothingToWrite(plain)
}
