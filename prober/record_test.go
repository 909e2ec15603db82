package prober

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/health"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

func at(d time.Duration) *metav1.Time { return &metav1.Time{Time: epoch().Add(d)} }

func TestFirstVerdictDriftAndFlipAreWritten(t *testing.T) {
	r := newRig(t, 8)
	p := proxyProbeOf("a")
	require.NoError(t, r.runner.Add(p))

	r.round(good(40 * time.Millisecond))
	first := r.write(p)
	latency := int64(40)
	assert.Equal(t, health.FirstVerdict, first.reason)
	assert.Equal(t, v1alpha1.ProxyProbeStatus{
		InstanceID: "instance-1", Verdict: healthy, Reason: "ProbeSucceeded", Message: "fine",
		LatencyMillis: &latency, LastTransitionTime: at(0), LastProbeTime: at(0), ObservedGeneration: 1,
	}, first.status)

	r.round(good(50 * time.Millisecond))
	r.nothingToWrite(p)
	r.step(time.Minute)
	r.round(good(100 * time.Millisecond))
	slower := r.write(p)
	assert.Equal(t, health.LatencyDrift, slower.reason)
	assert.Equal(t, int64(100), *slower.status.LatencyMillis)
	assert.Equal(t, first.status.LastTransitionTime, slower.status.LastTransitionTime, "no transition")

	r.round(bad(probe.ReasonDialFailed))
	r.round(bad(probe.ReasonConnectTimeout))
	r.nothingToWrite(p)
	before := r.clock.Now()
	r.round(bad(probe.ReasonProxyAuthRefused))
	down := r.write(p)
	assert.Equal(t, health.Flip, down.reason)
	assert.Equal(t, unhealthy, down.status.Verdict)
	assert.Equal(t, "ProxyAuthRefused", down.status.Reason, "of the last probe, which tipped it")
	assert.Equal(t, before, down.status.LastTransitionTime.Time)
	assert.Equal(t, 3, r.pending[keyOf(p)], "the writer was called for each and for nothing else")
}

func TestUnwrittenVerdictIsRequestedAgain(t *testing.T) {
	r := newRig(t, 8)
	p := proxyProbeOf("a")
	require.NoError(t, r.runner.Add(p))
	for range 5 {
		r.round(good(40 * time.Millisecond))
		rep, ok := r.runner.statusToWrite(keyOf(p))
		require.True(t, ok)
		assert.Equal(t, health.FirstVerdict, rep.reason)
	}
	assert.Equal(t, 5, r.pending[keyOf(p)], "each probe asks again")
	assert.Equal(t, at(0), r.write(p).status.LastTransitionTime, "of the transition, not of the write")
	r.nothingToWrite(p)
}

func TestFlipBackBeforeTheWriteIsNotWritten(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	require.NoError(t, r.runner.Add(p))
	r.step(30 * time.Second)
	for range 3 {
		r.round(bad(probe.ReasonDialFailed))
	}
	_, ok := r.runner.statusToWrite(keyOf(p))
	require.True(t, ok)
	r.round(good(40 * time.Millisecond))
	r.nothingToWrite(p)
	r.step(time.Hour)
	r.round(good(400 * time.Millisecond))
	rep := r.write(p)
	assert.Equal(t, health.LatencyDrift, rep.reason)
	assert.Equal(t, at(-time.Hour).UTC(), rep.status.LastTransitionTime.UTC(), "readers saw no transition")
}

// The reason is that of a probe that agrees with the verdict.
func TestReasonIsOfAProbeThatAgreesWithTheVerdict(t *testing.T) {
	r := newRig(t, 8)
	p := proxyProbeOf("a")
	p.Spec.HealthCheck.SuccessThreshold = 2
	require.NoError(t, r.runner.Add(p))
	for range 3 {
		r.round(bad(probe.ReasonDialFailed))
	}
	r.round(good(time.Millisecond)) // one success does not make it healthy
	rep := r.write(p)
	assert.Equal(t, unhealthy, rep.status.Verdict)
	assert.Equal(t, "DialFailed", rep.status.Reason)
}

func TestInconclusiveProbesDoNotInterruptFailures(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	require.NoError(t, r.runner.Add(p))
	r.step(30 * time.Second)
	r.round(bad(probe.ReasonDialFailed))
	r.round(bad(probe.ReasonDialFailed))
	for range health.InconclusiveLimit - 1 {
		r.round(unsure(probe.ReasonProberFault))
	}
	assert.Equal(t, healthy, r.verdict(p))
	r.round(bad(probe.ReasonDialFailed))
	assert.Equal(t, unhealthy, r.verdict(p), "and does not break a run")
}

func TestFlipsAndInconclusiveReasonsAreLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	r := newRig(t, 8)
	r.runner.log = slog.New(slog.NewTextHandler(&out, nil))
	require.NoError(t, r.runner.Add(proxyProbeOf("a")))
	results := []probe.Result{
		good(time.Millisecond), good(time.Millisecond),
		unsure(probe.ReasonCanceled), unsure(probe.ReasonProberFault), unsure(probe.ReasonProberFault),
		bad(probe.ReasonDialFailed), bad(probe.ReasonDialFailed), bad(probe.ReasonDialFailed), bad(probe.ReasonDialFailed),
	}
	for _, res := range results {
		r.round(res)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 3)
	assert.Contains(t, lines[0], "msg=verdict proxy=a namespace=crawl instanceID=instance-1 verdict=Healthy")
	assert.Contains(t, lines[1], `msg="cannot probe"`)
	assert.Contains(t, lines[2], "verdict=Unhealthy was=Healthy outcome=failure reason=DialFailed")
}

func TestLongMessageIsClippedToTheCRDBound(t *testing.T) {
	r := newRig(t, 8)
	p := proxyProbeOf("a")
	require.NoError(t, r.runner.Add(p))
	long := good(time.Millisecond)
	long.Message = strings.Repeat("ä", 5000)
	r.round(long)
	assert.Equal(t, strings.Repeat("ä", 1024-1)+"…", r.write(p).status.Message)
}

func TestSeedWithTimesInTheFuture(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	p.Status.LastProbeTime = at(24 * time.Hour)
	require.NoError(t, r.runner.Add(p))
	r.step(30 * time.Second)
	r.round(good(900 * time.Millisecond))
	assert.Equal(t, health.LatencyDrift, r.write(p).reason, "reports are not held back for a day")

	bare := judged("b", healthy)
	bare.Status.LastProbeTime, bare.Status.LastTransitionTime, bare.Status.LatencyMillis = nil, nil, nil
	require.NoError(t, r.runner.Add(bare))
	assert.Equal(t, healthy, r.verdict(bare))
}

// Real probes through a real proxy that fails in several ways and recovers.
func TestThresholdsAgainstARealProxy(t *testing.T) {
	r, s := newRig(t, 1), newScene(t, "a")
	s.probe.Spec.HealthCheck.SuccessThreshold = 2
	s.probe.Spec.HealthCheck.Timeout = metav1.Duration{Duration: patience}
	c := &checker{probe: probe.New(s.ca.Pool()).Probe}
	require.NoError(t, r.runner.Add(s.probe))
	round := func(b probetest.Behaviour, want v1alpha1.Verdict, reason probe.Reason) {
		t.Helper()
		s.proxy.Set(b)
		j := r.one()
		result := c.check(j.ctx, j)
		assert.Equal(t, reason, result.Reason, result.Message)
		r.runner.finish(j, result)
		r.step(30 * time.Second)
		assert.Equal(t, want, r.verdict(s.probe))
	}
	round(s.works, "", probe.ReasonProbeSucceeded)
	round(probetest.Reset, "", probe.ReasonConnectFailed)
	round(s.works, "", probe.ReasonProbeSucceeded)
	round(s.works, healthy, probe.ReasonProbeSucceeded)
	r.write(s.probe)
	round(probetest.Answer(http.StatusForbidden), healthy, probe.ReasonConnectRefused)
	round(probetest.CloseAtOnce, healthy, probe.ReasonConnectFailed)
	round(s.works, healthy, probe.ReasonProbeSucceeded)
	round(probetest.Answer(http.StatusForbidden), healthy, probe.ReasonConnectRefused)
	round(probetest.Answer(http.StatusForbidden), healthy, probe.ReasonConnectRefused)
	round(probetest.Answer(http.StatusBadGateway), unhealthy, probe.ReasonUpstreamFailed)
	assert.Equal(t, "UpstreamFailed", r.write(s.probe).status.Reason)
	round(s.works, unhealthy, probe.ReasonProbeSucceeded)
	round(s.works, healthy, probe.ReasonProbeSucceeded)
}
