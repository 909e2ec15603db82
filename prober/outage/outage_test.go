package outage

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

const targetA = "a.invalid:443"

// epoch is when the clock of the tests starts.
func epoch() time.Time { return time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC) }

func keyOf(i int) Key { return Key{Namespace: "crawl", Name: fmt.Sprint(i)} }

// healthyFleet returns a machine that knows n Healthy proxies.
func healthyFleet(n int) *Machine {
	m := New(Config{DirectCheck: true, TargetHold: time.Hour, FleetShare: 0.5, FleetHold: 5 * time.Minute})
	for i := range n {
		m.SetStanding(keyOf(i), Standing{Verdict: v1alpha1.VerdictHealthy})
	}
	return m
}

// failure is a probe of a proxy that failed with a target.
func failure(i int, reason probe.Reason, started time.Time) Probe {
	return Probe{
		Key: keyOf(i), Started: started, HealthCheck: &v1alpha1.HealthCheck{}, URL: "https://a.invalid/",
		Result: probe.Result{Outcome: probe.Failure, Reason: reason, Target: targetA, Message: "connect: no"},
	}
}

// reach passes a failure to the machine that reaches the threshold.
func reach(m *Machine, p Probe, now time.Time) []Effect {
	_, first := m.Probed(p, now)
	m.SetStanding(p.Key, Standing{Verdict: v1alpha1.VerdictHealthy, Failing: true})
	return append(first, m.ThresholdReached(p, now)...)
}

// actions are the effects on a proxy.
func actions(effects []Effect, i int) []Action {
	var out []Action
	for _, e := range effects {
		if e.Key == keyOf(i) {
			out = append(out, e.Do)
		}
	}
	return out
}

func TestProxyFailureFlipsAtOnce(t *testing.T) {
	m := healthyFleet(1)
	effects := reach(m, failure(0, probe.ReasonDialFailed, epoch()), epoch())
	assert.Equal(t, []Action{AttributeToProxy, MarkUnhealthy}, actions(effects, 0))
	assert.Empty(t, m.Targets())
}

func TestFlipAfterADirectCheckThatWorks(t *testing.T) {
	m, now := healthyFleet(1), epoch()
	effects := reach(m, failure(0, probe.ReasonConnectTimeout, now), now)
	assert.NotContains(t, actions(effects, 0), MarkUnhealthy)
	assert.True(t, slices.ContainsFunc(effects, func(e Effect) bool { return e.Do == WantCheck }))
	assert.Equal(t, 1, m.Targets()[targetA].Pending)

	checks, _ := m.StartChecks(now.Add(time.Second))
	require.Len(t, checks, 1)
	assert.Equal(t, "https://a.invalid/", checks[0].HealthCheck.ProbeURL)
	effects = m.CheckDone(checks[0], probe.Result{Outcome: probe.Success}, now.Add(2*time.Second))
	assert.Equal(t, []Action{MarkUnhealthy, WriteStatus}, actions(effects, 0))
}

func TestTargetDownDropsAndSuppressesFailures(t *testing.T) {
	m, now := healthyFleet(1), epoch()
	reach(m, failure(0, probe.ReasonConnectTimeout, now), now)
	checks, _ := m.StartChecks(now.Add(time.Second))
	require.Len(t, checks, 1)
	down := probe.Result{Outcome: probe.Failure, Message: "dial: connection refused"}
	effects := m.CheckDone(checks[0], down, now.Add(2*time.Second))
	assert.Contains(t, actions(effects, 0), DropFailures)
	assert.Contains(t, actions(effects, 0), Suppress)
	assert.NotContains(t, actions(effects, 0), MarkUnhealthy)
	assert.True(t, m.Targets()[targetA].Down)

	now = now.Add(time.Minute)
	r, _ := m.Probed(failure(0, probe.ReasonConnectTimeout, now), now)
	assert.Equal(t, probe.Inconclusive, r.Outcome)
	assert.Equal(t, probe.ReasonProbeTargetDown, r.Reason)
	assert.Equal(t, "connect: no (ConnectTimeout); held: the direct check of "+targetA+" fails too: dial: connection refused", r.Message)

	checks, _ = m.StartChecks(now)
	require.Len(t, checks, 1)
	effects = m.CheckDone(checks[0], probe.Result{Outcome: probe.Success}, now)
	assert.Equal(t, []Action{Release, WriteStatus}, actions(effects, 0), "its status announced the hold")
	assert.False(t, m.Targets()[targetA].Down)
}

func TestCheckOfAnEvictedTargetHasNoEffect(t *testing.T) {
	m, now := healthyFleet(1), epoch()
	reach(m, failure(0, probe.ReasonConnectTimeout, now), now)
	checks, _ := m.StartChecks(now.Add(time.Second))
	m.Reset()
	assert.Empty(t, actions(m.CheckDone(checks[0], probe.Result{Outcome: probe.Success}, now), 0))
	assert.Empty(t, m.Targets())
}

func TestFleetHoldSuppressesFlipsUntilItExpires(t *testing.T) {
	m, now := healthyFleet(MinFleet), epoch()
	for i := range MinFleet {
		m.SetStanding(keyOf(i), Standing{Verdict: v1alpha1.VerdictHealthy, Failing: true})
	}
	effects := reach(m, failure(0, probe.ReasonDialFailed, now), now)
	assert.Equal(t, []Action{Suppress}, actions(effects, 0))
	assert.True(t, m.FleetHeld())

	now = now.Add(5 * time.Minute)
	effects = reach(m, failure(0, probe.ReasonDialFailed, now), now)
	assert.Contains(t, actions(effects, 0), MarkUnhealthy)
}

// The counters of the fleet equal a count of its proxies after every change.
func TestFleetCountersFollowStandings(t *testing.T) {
	m, now := healthyFleet(3), epoch()
	m.SetStanding(keyOf(0), Standing{Verdict: v1alpha1.VerdictHealthy, Failing: true})
	m.SetStanding(keyOf(1), Standing{Verdict: v1alpha1.VerdictUnhealthy, FlippedAt: now})
	failing, all := m.fleet.measure(now)
	assert.Equal(t, []int{2, 3}, []int{failing, all})
	failing, all = m.fleet.measure(now.Add(flipWindow))
	assert.Equal(t, []int{1, 2}, []int{failing, all}, "the flip is no longer recent")
	m.Remove(keyOf(0))
	m.Remove(keyOf(0))
	failing, all = m.fleet.measure(now)
	assert.Equal(t, []int{0, 1}, []int{failing, all})
}
