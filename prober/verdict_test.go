package prober

import (
	"math/rand/v2"
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

func TestTally(t *testing.T) {
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
			counted := tally{verdict: tc.seed}
			got := ""
			for _, p := range tc.probes {
				counted = counted.add(p == '+', thresholds(tc.failure, tc.success), epoch())
				got += letter(counted.verdict)
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

func TestTallySinceMovesWithTheVerdictAlone(t *testing.T) {
	hc, at := thresholds(2, 1), epoch()
	counted := tally{}
	for i, want := range []int{0, 0, 0, 3, 3, 5} {
		counted = counted.add(i < 2 || i == 5, hc, at.Add(time.Duration(i)*time.Second))
		assert.Equal(t, at.Add(time.Duration(want)*time.Second), counted.since, "after probe %d", i)
	}
}

func TestAThresholdEditedDownTakesEffectAtTheNextProbe(t *testing.T) {
	counted := tally{verdict: healthy}
	for range 4 {
		counted = counted.add(false, thresholds(10, 1), epoch())
	}
	require.Equal(t, healthy, counted.verdict)
	assert.Equal(t, unhealthy, counted.add(false, thresholds(3, 1), epoch()).verdict)
}

func TestAgrees(t *testing.T) {
	assert.True(t, agrees(healthy, true))
	assert.True(t, agrees(unhealthy, false))
	assert.False(t, agrees(healthy, false))
	assert.False(t, agrees(unhealthy, true))
	assert.False(t, agrees(unknown, true))
	assert.False(t, agrees("", false))
}

func TestOccasion(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	said := func(v v1alpha1.Verdict, latency, secondsAgo int) reported {
		return reported{verdict: v, latency: ms(latency), at: epoch().Add(-time.Duration(secondsAgo) * time.Second)}
	}
	for _, tc := range []struct {
		name     string
		reported reported
		verdict  v1alpha1.Verdict
		latency  int
		want     occasion
	}{
		{"nothing known", reported{}, "", 0, noOccasion},
		{"nothing can be known", reported{}, unknown, 40, firstVerdict},
		{"nothing can be known still", said(unknown, 0, 1), unknown, 40, noOccasion},
		{"nothing can be known any more", said(healthy, 40, 1), unknown, 40, flip},
		{"something is known at last", said(unknown, 0, 1), healthy, 40, firstVerdict},
		{"first verdict", reported{}, healthy, 40, firstVerdict},
		{"first verdict, a bad one", reported{}, unhealthy, 40, firstVerdict},
		{"flip to bad", said(healthy, 40, 1), unhealthy, 40, flip},
		{"flip to good", said(unhealthy, 40, 1), healthy, 40, flip},
		{"no change", said(healthy, 40, 3600), healthy, 40, noOccasion},
		{"a little slower", said(healthy, 100, 3600), healthy, 150, noOccasion},
		{"half as slow again", said(healthy, 100, 3600), healthy, 151, changeOfLatency},
		{"twice as fast", said(healthy, 100, 3600), healthy, 49, changeOfLatency},
		{"jitter below the floor", said(healthy, 10, 3600), healthy, 30, noOccasion},
		{"just above the floor", said(healthy, 10, 3600), healthy, 31, changeOfLatency},
		{"too soon", said(healthy, 100, 59), healthy, 1000, noOccasion},
		{"a minute later", said(healthy, 100, 60), healthy, 1000, changeOfLatency},
		{"only while healthy", said(unhealthy, 100, 3600), unhealthy, 1000, noOccasion},
		{"no probe since the restart", said(healthy, 100, 3600), healthy, 0, noOccasion},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, tc.reported.occasion(tally{verdict: tc.verdict}, ms(tc.latency), epoch()))
		})
	}
}

// Whatever happens, a verdict flips only at the end of a full run, and what is
// written never exceeds transitions and latency reports, which are a minute
// apart.
func TestVerdictsProperty(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		hc := thresholds(1+random.Int32N(5), 1+random.Int32N(5))
		h := history{t: t, hc: hc, now: epoch()}
		for range 300 {
			h.probe(random.IntN(4) != 0, time.Duration(random.IntN(400))*time.Millisecond, random.IntN(3) != 0)
			h.now = h.now.Add(time.Duration(random.IntN(40)) * time.Second)
		}
	}
}

// history replays probes and writes, and checks each step against its own
// counting.
type history struct {
	t        *testing.T
	hc       *v1alpha1.HealthCheck
	now      time.Time
	tally    tally
	reported reported

	run         []bool // outcomes, all of them
	transitions int
	writes      int
	reports     []time.Time // of latency
}

func (h *history) probe(success bool, latency time.Duration, writeWorks bool) {
	before := h.tally.verdict
	h.tally = h.tally.add(success, h.hc, h.now)
	h.run = append(h.run, success)
	if h.tally.verdict != before {
		h.transitions++
		h.checkRun()
	}
	why := h.reported.occasion(h.tally, latency, h.now)
	if why == noOccasion || !writeWorks {
		return
	}
	h.writes++
	if why == changeOfLatency {
		if n := len(h.reports); n > 0 {
			require.GreaterOrEqual(h.t, h.now.Sub(h.reports[n-1]), minReportInterval)
		}
		h.reports = append(h.reports, h.now)
	}
	h.reported = reported{verdict: h.tally.verdict, latency: latency, at: h.now}
	require.LessOrEqual(h.t, h.writes, h.transitions+len(h.reports))
	require.Equal(h.t, noOccasion, h.reported.occasion(h.tally, latency, h.now), "written once")
}

func (h *history) checkRun() {
	n := int(h.hc.FailureThreshold)
	if h.tally.verdict == healthy {
		n = int(h.hc.SuccessThreshold)
	}
	require.GreaterOrEqual(h.t, len(h.run), n)
	for _, success := range h.run[len(h.run)-n:] {
		require.Equal(h.t, h.tally.verdict == healthy, success, "a flip at the end of a full run")
	}
}
