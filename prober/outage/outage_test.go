package outage

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

func TestProxyFailureFlipsAtOnce(t *testing.T) {
	m := healthyFleet(1)
	effects := reach(m, failure(0, probe.ReasonDialFailed, epoch()), epoch())
	assert.Equal(t, []Action{AttributeToProxy, MarkUnhealthy}, actions(effects, 0))
	assert.Zero(t, m.Targets()[targetA].Pending)
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
	m.Announced("verdicts are held: the direct check of "+targetA+" fails too: no", now)
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
