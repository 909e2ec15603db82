package outage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// noName is what a direct check of a name ends with that only the proxies can resolve.
var noName = probe.Result{Outcome: probe.Failure, Message: "dial: the name does not resolve"}

// Only the proxy resolves the name of its probe target. The direct check never worked,
// so that it explains no failure.
func TestDirectCheckThatNeverWorkedHoldsNothing(t *testing.T) {
	for _, works := range []int{0, 1, 20} { // rounds before the proxy fails
		c := newCrowd(1)
		c.checks = noName
		for range works {
			c.round(all(probe.ReasonProbeSucceeded))
		}
		c.round(all(probe.ReasonUpstreamFailed))
		c.round(all(probe.ReasonUpstreamFailed))
		assert.Zero(t, c.unhealthy(0, 1))
		c.round(all(probe.ReasonUpstreamFailed))
		assert.Equal(t, 1, c.unhealthy(0, 1), "after failureThreshold, %d rounds worked before", works)
		assert.False(t, c.Targets()[targetA].Down)
		assert.True(t, c.Targets()[targetA].ChecksIgnored)
	}
}

// The direct check worked while all was well: when it fails with the proxies, the target
// is down.
func TestDirectCheckThatWorkedHolds(t *testing.T) {
	c := newCrowd(1)
	c.round(all(probe.ReasonProbeSucceeded))
	require.Len(t, c.begun, 1)
	c.checks = noName
	for range 10 {
		c.round(all(probe.ReasonUpstreamFailed))
	}
	assert.Zero(t, c.unhealthy(0, 1))
	assert.True(t, c.Targets()[targetA].Down)
}

// While all is well a target is checked once in five minutes, however large the fleet,
// and targets take turns.
func TestChecksWhileAllIsWell(t *testing.T) {
	c := newCrowd(100)
	for range 60 { // half an hour
		c.round(all(probe.ReasonProbeSucceeded))
	}
	assert.InDelta(t, 6, len(c.begun), 1)

	m, now, due := healthyFleet(50), epoch(), 0
	for i := range 50 {
		p := failure(i, probe.ReasonProbeSucceeded, now)
		p.Result.Outcome, p.Result.Target = probe.Success, keyOf(i).Name+".invalid:443"
		m.Probed(p, now)
		checks, _ := m.StartChecks(now)
		due += len(checks)
	}
	assert.Equal(t, 1, due, "not all at once")
}

// A prober that starts in an outage of the target: the status that its predecessor wrote
// shows that the direct check had worked. A verdict Healthy shows only that proxies
// reached the target.
func TestAnnouncedOutageProvesTheDirectCheck(t *testing.T) {
	for _, tc := range []struct {
		message string
		held    bool
	}{
		{"verdicts are held: " + beforeTarget + targetA + afterTarget + "dial: no", true},
		{"connect: 502 (UpstreamFailed); held: " + beforeTarget + targetA + afterTarget + "dial: no", true},
		{"verdicts are held: " + beforeTarget + "other.invalid:443" + afterTarget + "dial: no", false},
		{"verdicts are held: 30 of 40 proxies do not answer", false},
		{"verdicts are held: " + beforeTarget, false},
		{"a.invalid answered 204 through the proxy", false},
	} {
		c := newCrowd(2)
		c.checks = noName
		c.Announced(tc.message, c.now)
		for range 3 {
			c.round(all(probe.ReasonUpstreamFailed))
		}
		assert.Equal(t, tc.held, c.unhealthy(0, 2) == 0, tc.message)
	}
}

// A prober starts while the target is down, and no status shows that. Nothing has reached
// the target in this process: much of the fleet is held as if it were silent, at most for
// FleetHold.
func TestNothingReachedTheTargetSinceTheStart(t *testing.T) {
	c := newCrowd(100)
	c.checks = noName
	for range 6 {
		c.round(all(probe.ReasonUpstreamFailed))
	}
	assert.Zero(t, c.unhealthy(0, 100))
	assert.True(t, c.FleetHeld())
	for range 5 {
		c.round(all(probe.ReasonUpstreamFailed))
	}
	assert.Equal(t, 100, c.unhealthy(0, 100))

	c = newCrowd(100)
	c.checks = noName
	c.round(all(probe.ReasonProbeSucceeded))
	for range 3 {
		c.round(all(probe.ReasonUpstreamFailed))
	}
	assert.Equal(t, 100, c.unhealthy(0, 100), "a probe reached it: the proxies answer, and fail")
}

// A CDN in front of an http target refuses with a proxy's marks, and refuses the direct
// check, too. Where the direct check works, the refusal is the proxy's.
func TestRefusalThatTheTargetMayHaveSentIsHeldWhileItIsDown(t *testing.T) {
	for _, down := range []bool{true, false} {
		m, now := healthyFleet(1), epoch()
		m.Announced(beforeTarget+targetA+afterTarget, now)
		p := failure(0, probe.ReasonConnectRefused, now)
		p.Result.Forwarded = true
		assert.NotContains(t, actions(reach(m, p, now), 0), MarkUnhealthy)
		checks, _ := m.StartChecks(now.Add(time.Second))
		require.Len(t, checks, 1)
		r := probe.Result{Outcome: probe.Success}
		if down {
			r = noName
		}
		effects := m.CheckDone(checks[0], r, now.Add(2*time.Second))
		assert.Equal(t, down, m.Targets()[targetA].Down)
		if down {
			assert.Contains(t, actions(effects, 0), Suppress)
		} else {
			assert.Contains(t, actions(effects, 0), MarkUnhealthy)
		}
	}
}

// A load balancer in front of the echo endpoint adds headers since ever. The direct check
// reached the endpoint, so that it is evidence although none ever worked.
func TestLeakInFrontOfTheTargetHoldsVerdicts(t *testing.T) {
	c := newCrowd(20)
	c.checks = probe.Result{Outcome: probe.Failure, Reason: probe.ReasonHeaderLeak, Message: "body: something in front adds X-Real-Ip"}
	for range 10 {
		c.round(all(probe.ReasonHeaderLeak))
	}
	assert.Zero(t, c.unhealthy(0, 20))
	assert.Contains(t, c.proxies[0].SuppressReason, "something in front adds X-Real-Ip")
	assert.False(t, c.FleetHeld(), "a leak shows that the proxies reach the target")

	leaks := c.checks
	c = newCrowd(20)
	c.checks = noName
	c.round(all(probe.ReasonHeaderLeak))
	c.checks = leaks // the endpoint was out of the prober's reach until now
	for range 10 {
		c.round(all(probe.ReasonHeaderLeak))
	}
	assert.Zero(t, c.unhealthy(0, 20))

	c = newCrowd(20)
	for range 3 {
		c.round(all(probe.ReasonHeaderLeak))
	}
	assert.Equal(t, 20, c.unhealthy(0, 20), "the direct check sees no leak")
}

// A firewall closes after the direct check worked. Probes contradict the checks before
// a proxy dies.
func TestContradictedCheckWhileAllIsWellIsIgnored(t *testing.T) {
	c := newCrowd(1)
	c.round(all(probe.ReasonProbeSucceeded))
	c.checks = noName
	for range 30 {
		c.round(all(probe.ReasonProbeSucceeded))
	}
	assert.True(t, c.Targets()[targetA].ChecksIgnored)
	for range 3 {
		c.round(all(probe.ReasonUpstreamFailed))
	}
	assert.Equal(t, 1, c.unhealthy(0, 1))
}

// The evidence of a target lasts as long as its proxies' longest interval needs.
func TestTargetOfHourlyProbesIsNotForgotten(t *testing.T) {
	c := newCrowd(1)
	p := failure(0, probe.ReasonProbeSucceeded, c.now)
	p.Result.Outcome = probe.Success
	p.HealthCheck.Interval.Duration = time.Hour
	c.Probed(p, c.now)
	c.pass(time.Second)
	require.Len(t, c.begun, 1)
	c.pass(90 * time.Minute)
	assert.Contains(t, c.Targets(), targetA)
	c.pass(3 * time.Hour)
	assert.Empty(t, c.Targets())
}

func FuzzAnnounced(f *testing.F) {
	f.Add("verdicts are held: " + beforeTarget + targetA + afterTarget + "dial: no")
	f.Add(beforeTarget + "[::1]:80" + afterTarget)
	f.Fuzz(func(t *testing.T, message string) {
		m := New(Config{DirectCheck: true})
		m.Announced(message, epoch())
		assert.LessOrEqual(t, len(m.Targets()), 1)
		m = New(Config{})
		m.Announced(message, epoch())
		assert.Empty(t, m.Targets())
	})
}
