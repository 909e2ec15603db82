package outage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// many is the size of a large fleet.
const many = 10_000

// A vendor's contract ends: all proxies answer, and what they answer is a failure. No
// flip is held, neither before nor after a first success in this process.
func TestFleetThatAnswersFlipsAtOnce(t *testing.T) {
	for _, reason := range []probe.Reason{
		probe.ReasonDialFailed, probe.ReasonProxyAuthRefused, probe.ReasonConnectRefused, probe.ReasonProxyTLSFailed, probe.ReasonConnectFailed,
		probe.ReasonUpstreamFailed, probe.ReasonTLSHandshakeFailed, probe.ReasonUnexpectedStatus, probe.ReasonResponseIncomplete,
	} {
		c := newCrowd(many)
		c.round(all(probe.ReasonProbeSucceeded))
		for range 2 {
			c.round(all(reason))
			assert.Zero(t, c.unhealthy(0, many), reason)
		}
		c.round(all(reason)) // the direct check ends within the round
		assert.Equal(t, many, c.unhealthy(0, many), reason)
		assert.False(t, c.FleetHeld(), reason)
	}
}

// Silence may be the prober's own fault. It is held for FleetHold, then all flips come
// at once, without another probe.
func TestSilentFleetIsHeldAndFlipsAtOnce(t *testing.T) {
	for _, reason := range []probe.Reason{
		probe.ReasonDialTimeout, probe.ReasonProxyUnreachable, probe.ReasonProxyNotResolved, probe.ReasonProxyTLSTimeout, probe.ReasonConnectTimeout, probe.ReasonResponseTimeout,
	} {
		c := newCrowd(many)
		c.round(all(probe.ReasonProbeSucceeded))
		died := c.now
		for range 5 {
			c.round(all(reason))
		}
		assert.True(t, c.FleetHeld(), reason)
		assert.Zero(t, c.unhealthy(0, many), reason)
		for c.now.Before(died.Add(30*time.Second + 5*time.Minute)) { // the hold began with the second probes
			c.pass(time.Second)
		}
		c.pass(time.Second)
		c.pass(time.Second) // for a direct check, where one is needed
		assert.Equal(t, many, c.unhealthy(0, many), reason)
	}
}

// Some proxies refuse and the others are silent. The refusals prove that the prober's
// network works: silence is held only while more than the share of all is silent.
func TestMixedFleetHoldsOnlySilence(t *testing.T) {
	for _, tc := range []struct {
		refuse       int
		silentFlip   bool
		othersSilent bool
	}{
		{refuse: 3_000, othersSilent: true},
		{refuse: 6_000, othersSilent: true, silentFlip: true},
	} {
		c := newCrowd(many)
		c.round(all(probe.ReasonProbeSucceeded))
		for range 3 {
			c.round(first(tc.refuse, probe.ReasonDialFailed, probe.ReasonDialTimeout))
		}
		assert.Equal(t, tc.refuse, c.unhealthy(0, tc.refuse))
		if tc.silentFlip {
			assert.Equal(t, many-tc.refuse, c.unhealthy(tc.refuse, many))
		} else {
			assert.Zero(t, c.unhealthy(tc.refuse, many))
		}
	}
}

// A proxy that was silent in a hold and then refuses once needs a full run of answers.
func TestAnswerInAHoldDoesNotCompleteARunOfSilence(t *testing.T) {
	c := newCrowd(20)
	c.round(all(probe.ReasonProbeSucceeded))
	for range 4 {
		c.round(all(probe.ReasonDialTimeout))
	}
	for range 2 {
		c.round(first(1, probe.ReasonDialFailed, probe.ReasonDialTimeout))
		assert.Zero(t, c.unhealthy(0, 20))
	}
	c.round(first(1, probe.ReasonDialFailed, probe.ReasonDialTimeout))
	assert.Equal(t, 1, c.unhealthy(0, 20))
	assert.True(t, c.FleetHeld())
}

// A success in the very moment in which the hold runs out keeps its verdict.
func TestSuccessAtTheEndOfAHoldKeepsTheVerdict(t *testing.T) {
	c := newCrowd(20)
	c.round(all(probe.ReasonProbeSucceeded))
	for range 5 {
		c.round(all(probe.ReasonDialTimeout))
	}
	c.now = c.now.Add(5 * time.Minute)
	c.probe(0, probe.ReasonProbeSucceeded)
	assert.Equal(t, v1alpha1.VerdictHealthy, c.proxies[0].Verdict)
	assert.Equal(t, 19, c.unhealthy(0, 20))
}

// After a restart the statuses of a predecessor are no results: the share is of what
// this process probed.
func TestFleetHoldCountsResultsOfThisProcessAlone(t *testing.T) {
	c := newCrowd(many)
	for range 3 {
		for i := range 30 { // the others are due in an hour
			c.probe(i, probe.ReasonDialTimeout)
		}
		c.pass(30 * time.Second)
	}
	assert.Zero(t, c.unhealthy(0, many), "30 of 30 are silent, and not 30 of 10,000")
	assert.True(t, c.FleetHeld())
}

// Fewer results than MinFleet are no evidence for a hold.
func TestTooFewFreshResultsHoldNothing(t *testing.T) {
	c := newCrowd(100)
	for range 3 {
		for i := range MinFleet - 1 {
			c.probe(i, probe.ReasonDialTimeout)
		}
		c.pass(30 * time.Second)
	}
	assert.Equal(t, MinFleet-1, c.unhealthy(0, 100))
}

// What answered before the failures began is no evidence that the network still works.
func TestStaleAnswersDoNotPreventAHold(t *testing.T) {
	c := newCrowd(100)
	c.round(all(probe.ReasonProbeSucceeded))
	c.pass(10 * time.Minute)
	for range 3 {
		for i := range 20 { // the others have long intervals
			c.probe(i, probe.ReasonDialTimeout)
		}
		c.pass(30 * time.Second)
	}
	assert.Zero(t, c.unhealthy(0, 100))
	assert.True(t, c.FleetHeld())
}

func TestCountSilent(t *testing.T) {
	m, now := healthyFleet(4), epoch()
	count := func(want ...int) {
		t.Helper()
		silent, all := m.countSilent(now.Add(-flipWindow), now)
		assert.Equal(t, want, []int{silent, all})
	}
	count(0, 0)
	m.Probed(failure(0, probe.ReasonDialTimeout, now), now)
	m.Probed(failure(1, probe.ReasonDialFailed, now), now)
	m.Probed(Probe{Key: keyOf(2), Result: probe.Result{Outcome: probe.Success, Reason: probe.ReasonProbeSucceeded}}, now)
	m.Probed(Probe{Key: keyOf(3), Result: probe.Result{Reason: probe.ReasonCanceled}}, now)
	count(1, 3)
	m.SetStanding(keyOf(0), Standing{Verdict: v1alpha1.VerdictUnhealthy, FlippedAt: now})
	count(1, 3)
	now = now.Add(flipWindow)
	count(0, 2)
	now = now.Add(time.Second)
	count(0, 0)
	m.Remove(keyOf(0))
	m.Remove(keyOf(0))
}
