package outage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// A probe target goes down and comes back while the fleet is held. The flips that the
// fleet hold keeps still come at its end, without another probe.
func TestTargetThatComesBackReleasesNoFlipOfAFleetHold(t *testing.T) {
	const silent, behind = 80, 20 // the last proxies answer, until their target goes down
	c := newCrowd(silent + behind)
	mixed := first(silent, probe.ReasonDialTimeout, probe.ReasonProbeSucceeded)
	c.round(all(probe.ReasonProbeSucceeded))
	for range 4 {
		c.round(mixed)
	}
	require.True(t, c.FleetHeld())
	require.Equal(t, MaxAnnounced, c.announced)
	c.checks = noName
	for range 3 {
		c.round(first(silent, probe.ReasonDialTimeout, probe.ReasonUpstreamFailed))
	}
	require.True(t, c.Targets()[targetA].Down)
	c.checks = probe.Result{Outcome: probe.Success}
	c.pass(10 * time.Second)
	require.False(t, c.Targets()[targetA].Down)
	require.True(t, c.FleetHeld())
	assert.Zero(t, c.unhealthy(0, silent))
	assert.NotEmpty(t, c.proxies[0].SuppressReason, "its flip is still held")
	assert.Equal(t, MaxAnnounced, c.announced, "statuses that still announce the hold count")
	for range 6 {
		c.pass(time.Minute)
	}
	assert.Equal(t, silent, c.unhealthy(0, silent))
	assert.Zero(t, c.unhealthy(silent, silent+behind))
}
