package health

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

const (
	unknown   = v1alpha1.VerdictUnknown
	healthy   = v1alpha1.VerdictHealthy
	unhealthy = v1alpha1.VerdictUnhealthy
)

// epoch is when fake clocks start.
func epoch() time.Time { return time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC) }

func thresholds(failure, success int32) *v1alpha1.HealthCheck {
	hc := (&v1alpha1.HealthCheck{FailureThreshold: failure, SuccessThreshold: success}).OrDefault()
	return &hc
}

// addTo counts a probe, and flips the verdict when a threshold is reached.
func addTo(c *Counters, success bool, hc *v1alpha1.HealthCheck, at time.Time) {
	c.count(success)
	switch {
	case success:
		c.recovered(hc, at)
	case c.failed(hc):
		c.flip(unhealthy, at)
	}
}

func TestCountersFlipAtTheThreshold(t *testing.T) {
	for _, tc := range []struct {
		name             string
		failure, success int32
		seed             v1alpha1.Verdict
		probes           string // + success, - failure
		want             string // the verdict after each: H, U or ? for unknown
	}{
		{"one success is enough", 3, 1, "", "+", "H"},
		{"the first verdict needs a full run of failures", 3, 1, "", "---", "??U"},
		{"the first verdict needs a full run of successes", 3, 2, "", "++", "?H"},
		{"a success between failures starts them over", 3, 2, "", "--+---", "?????U"},
		{"flip at the threshold, not before", 3, 1, healthy, "--", "HH"},
		{"flip at the threshold", 3, 1, healthy, "---", "HHU"},
		{"back at the first success", 3, 1, unhealthy, "+", "H"},
		{"back at the second success", 3, 2, unhealthy, "+-++", "UUUH"},
		{"a single failure with threshold 1", 1, 1, healthy, "-+-", "UHU"},
		{"more of the same changes nothing", 2, 2, healthy, "+++++", "HHHHH"},
		{"a seeded verdict needs a full run too", 3, 1, healthy, "-+--+---", "HHHHHHHU"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			counted := Counters{Verdict: tc.seed}
			got := ""
			for _, p := range tc.probes {
				addTo(&counted, p == '+', thresholds(tc.failure, tc.success), epoch())
				got += letter(counted.Verdict)
			}
			assert.Equal(t, tc.want, got)
		})
	}
}

func letter(v v1alpha1.Verdict) string {
	switch v {
	case healthy:
		return "H"
	case unhealthy:
		return "U"
	}
	return "?"
}

func TestSinceChangesWithTheVerdictOnly(t *testing.T) {
	hc, at := thresholds(2, 1), epoch()
	counted := Counters{}
	for i, want := range []int{0, 0, 0, 3, 3, 5} {
		addTo(&counted, i < 2 || i == 5, hc, at.Add(time.Duration(i)*time.Second))
		assert.Equal(t, at.Add(time.Duration(want)*time.Second), counted.Since, "after probe %d", i)
	}
}

func TestLoweredThresholdTakesEffectAtTheNextProbe(t *testing.T) {
	counted := Counters{Verdict: healthy}
	for range 4 {
		addTo(&counted, false, thresholds(10, 1), epoch())
	}
	require.Equal(t, healthy, counted.Verdict)
	addTo(&counted, false, thresholds(3, 1), epoch())
	assert.Equal(t, unhealthy, counted.Verdict)
}

func TestAgrees(t *testing.T) {
	assert.True(t, agrees(healthy, true))
	assert.True(t, agrees(unhealthy, false))
	assert.False(t, agrees(healthy, false))
	assert.False(t, agrees(unhealthy, true))
	assert.False(t, agrees(unknown, true))
	assert.False(t, agrees("", false))
}
