package health

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// A standby follows all that the leader writes, so that it corrects what is untrue when
// it leads, and nothing else.
func TestStandbyFollowsStatusesWithTheSameVerdict(t *testing.T) {
	stored := func(version, message, exit string, latency int64) *v1alpha1.ProxyProbe {
		return &v1alpha1.ProxyProbe{
			ObjectMeta: metav1.ObjectMeta{ResourceVersion: version},
			Status: v1alpha1.ProxyProbeStatus{
				InstanceID: "instance-1", Verdict: unhealthy, Reason: "CredentialsRefused", Message: message, ExitIP: exit, LatencyMillis: &latency,
			},
		}
	}
	var p Proxy
	require.True(t, p.Seed(stored("1", "no label", "192.0.2.1", 40), "instance-1", epoch()))
	require.False(t, p.ReconcileStatus(stored("2", "newline", "192.0.2.2", 500), "instance-1", epoch()))
	assert.Equal(t, "newline", p.lastWritten.message)
	assert.Equal(t, "192.0.2.2", p.Exit.String())
	assert.True(t, p.Slow(500*time.Millisecond))
	p.ReconcileStatus(stored("1", "no label", "192.0.2.1", 40), "instance-1", epoch())
	assert.Equal(t, "newline", p.lastWritten.message, "an event from before")

	for range reasonRun {
		p.Count(false, LastProbe{Reason: probe.ReasonCredentialsRefused, Message: "no label"}, thresholds(3, 1), epoch())
	}
	assert.Equal(t, ReasonChange, p.WriteReason(epoch()))
}

// The watch returns successes without their message: what is known of it stays.
func TestMessageOfASuccessIsKeptWhenTheWatchDropsIt(t *testing.T) {
	c := newCourse()
	c.probe(probe.ReasonProbeSucceeded, "adds Via")
	latency := int64(0)
	pp := &v1alpha1.ProxyProbe{Status: v1alpha1.ProxyProbeStatus{InstanceID: "instance-1", Verdict: healthy, Reason: "ProbeSucceeded", LatencyMillis: &latency}}
	require.False(t, c.ReconcileStatus(pp, "instance-1", c.now))
	assert.Equal(t, "adds Via", c.lastWritten.message)
	assert.Equal(t, epoch(), c.lastWritten.at, "of the write")
}

func TestWriteReason(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	said := func(v v1alpha1.Verdict, latency, secondsAgo int) Written {
		return Written{Verdict: v, latency: ms(latency), at: epoch().Add(-time.Duration(secondsAgo) * time.Second)}
	}
	for _, tc := range []struct {
		name    string
		written Written
		verdict v1alpha1.Verdict
		latency int
		want    WriteReason
	}{
		{"no verdict", Written{}, "", 0, NoWrite},
		{"Unknown as the first verdict", Written{}, unknown, 40, FirstVerdict},
		{"Unknown again", said(unknown, 0, 1), unknown, 40, NoWrite},
		{"turned to Unknown", said(healthy, 40, 1), unknown, 40, Flip},
		{"first verdict after Unknown", said(unknown, 0, 1), healthy, 40, FirstVerdict},
		{"first verdict", Written{}, healthy, 40, FirstVerdict},
		{"first verdict, a bad one", Written{}, unhealthy, 40, FirstVerdict},
		{"flip to bad", said(healthy, 40, 1), unhealthy, 40, Flip},
		{"flip to good", said(unhealthy, 40, 1), healthy, 40, Flip},
		{"no change", said(healthy, 40, 3600), healthy, 40, NoWrite},
		{"a little slower", said(healthy, 100, 3600), healthy, 150, NoWrite},
		{"half as slow again", said(healthy, 100, 3600), healthy, 151, LatencyDrift},
		{"twice as fast", said(healthy, 100, 3600), healthy, 49, LatencyDrift},
		{"jitter below the floor", said(healthy, 10, 3600), healthy, 30, NoWrite},
		{"just above the floor", said(healthy, 10, 3600), healthy, 31, LatencyDrift},
		{"too soon", said(healthy, 100, 59), healthy, 1000, NoWrite},
		{"a minute later", said(healthy, 100, 60), healthy, 1000, LatencyDrift},
		{"only while healthy", said(unhealthy, 100, 3600), unhealthy, 1000, NoWrite},
		{"no probe since the restart", said(healthy, 100, 3600), healthy, 0, NoWrite},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, reasonToWrite(tc.written, Counters{Verdict: tc.verdict}, ms(tc.latency), epoch()))
		})
	}
}

// reasonToWrite is the reason with these counters and the latency of the newest probe.
func reasonToWrite(w Written, c Counters, latency time.Duration, now time.Time) WriteReason {
	p := Proxy{Counters: c, lastWritten: w, lastProbe: LastProbe{Latency: latency}}
	return p.WriteReason(now)
}

// A verdict flips only after a full run. There are no more writes than flips and latency
// drifts, and the latter are at least a minute apart.
func TestVerdictsAgainstRandomHistories(t *testing.T) {
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

// history replays probes and writes, and checks each step against counters of its own.
type history struct {
	t        *testing.T
	hc       *v1alpha1.HealthCheck
	now      time.Time
	counters Counters
	written  Written

	run         []bool // all outcomes
	transitions int
	writes      int
	reports     []time.Time // of latency
}

func (h *history) probe(success bool, latency time.Duration, writeWorks bool) {
	before := h.counters.Verdict
	addTo(&h.counters, success, h.hc, h.now)
	h.run = append(h.run, success)
	if h.counters.Verdict != before {
		h.transitions++
		h.checkRun()
	}
	why := reasonToWrite(h.written, h.counters, latency, h.now)
	if why == NoWrite || !writeWorks {
		return
	}
	h.writes++
	if why == LatencyDrift {
		if n := len(h.reports); n > 0 {
			require.GreaterOrEqual(h.t, h.now.Sub(h.reports[n-1]), minDriftInterval)
		}
		h.reports = append(h.reports, h.now)
	}
	h.written = Written{Verdict: h.counters.Verdict, latency: latency, at: h.now}
	require.LessOrEqual(h.t, h.writes, h.transitions+len(h.reports))
	require.Equal(h.t, NoWrite, reasonToWrite(h.written, h.counters, latency, h.now), "written once")
}

func (h *history) checkRun() {
	n := int(h.hc.FailureThreshold)
	if h.counters.Verdict == healthy {
		n = int(h.hc.SuccessThreshold)
	}
	require.GreaterOrEqual(h.t, len(h.run), n)
	for _, success := range h.run[len(h.run)-n:] {
		require.Equal(h.t, h.counters.Verdict == healthy, success, "a flip at the end of a full run")
	}
}
