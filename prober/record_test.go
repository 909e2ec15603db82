package prober

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

func at(d time.Duration) *metav1.Time { return &metav1.Time{Time: epoch().Add(d)} }

func TestTheThreeOccasionsOfAWrite(t *testing.T) {
	r := newRig(t, 8)
	p := proxyProbeOf("a")
	require.NoError(t, r.engine.Add(p))

	r.round(good(40 * time.Millisecond))
	first := r.write(p)
	latency := int64(40)
	assert.Equal(t, firstVerdict, first.occasion)
	assert.Equal(t, v1alpha1.ProxyProbeStatus{
		InstanceID: "instance-1", Verdict: healthy, Reason: "ProbeSucceeded", Message: "fine",
		LatencyMillis: &latency, LastTransitionTime: at(0), LastProbeTime: at(0), ObservedGeneration: 1,
	}, first.status)

	r.round(good(50 * time.Millisecond))
	r.nothingToWrite(p)
	r.step(time.Minute)
	r.round(good(100 * time.Millisecond))
	slower := r.write(p)
	assert.Equal(t, changeOfLatency, slower.occasion)
	assert.Equal(t, int64(100), *slower.status.LatencyMillis)
	assert.Equal(t, first.status.LastTransitionTime, slower.status.LastTransitionTime, "no transition")

	r.round(bad(probe.ReasonDialFailed))
	r.round(bad(probe.ReasonConnectTimeout))
	r.nothingToWrite(p)
	before := r.clock.Now()
	r.round(bad(probe.ReasonProxyAuthRefused))
	down := r.write(p)
	assert.Equal(t, flip, down.occasion)
	assert.Equal(t, unhealthy, down.status.Verdict)
	assert.Equal(t, "ProxyAuthRefused", down.status.Reason, "of the last probe, which tipped it")
	assert.Equal(t, before, down.status.LastTransitionTime.Time)
	assert.Equal(t, 3, r.pending[keyOf(p)], "the writer was called for each and for nothing else")
}

func TestWhatIsNotWrittenStaysToBeWritten(t *testing.T) {
	r := newRig(t, 8)
	p := proxyProbeOf("a")
	require.NoError(t, r.engine.Add(p))
	for range 5 {
		r.round(good(40 * time.Millisecond))
		rep, ok := r.engine.report(keyOf(p))
		require.True(t, ok)
		assert.Equal(t, firstVerdict, rep.occasion)
	}
	assert.Equal(t, 5, r.pending[keyOf(p)], "each probe asks again")
	assert.Equal(t, at(0), r.write(p).status.LastTransitionTime, "of the transition, not of the write")
	r.nothingToWrite(p)
}

func TestAFlipThatFlippedBackBeforeItsWriteIsNotWritten(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	require.NoError(t, r.engine.Add(p))
	r.step(30 * time.Second)
	for range 3 {
		r.round(bad(probe.ReasonDialFailed))
	}
	_, ok := r.engine.report(keyOf(p))
	require.True(t, ok)
	r.round(good(40 * time.Millisecond))
	r.nothingToWrite(p)
	r.step(time.Hour)
	r.round(good(400 * time.Millisecond))
	rep := r.write(p)
	assert.Equal(t, changeOfLatency, rep.occasion)
	assert.Equal(t, at(-time.Hour).UTC(), rep.status.LastTransitionTime.UTC(), "readers saw no transition")
}

// The reason is of a probe that speaks for the verdict, not of the odd one out.
func TestTheEvidenceAgreesWithTheVerdict(t *testing.T) {
	r := newRig(t, 8)
	p := proxyProbeOf("a")
	p.Spec.HealthCheck.SuccessThreshold = 2
	require.NoError(t, r.engine.Add(p))
	for range 3 {
		r.round(bad(probe.ReasonDialFailed))
	}
	r.round(good(time.Millisecond)) // one success does not make it healthy
	rep := r.write(p)
	assert.Equal(t, unhealthy, rep.status.Verdict)
	assert.Equal(t, "DialFailed", rep.status.Reason)
}

func TestAnInconclusiveProbeCountsForNothing(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	require.NoError(t, r.engine.Add(p))
	r.step(30 * time.Second)
	r.round(bad(probe.ReasonDialFailed))
	r.round(bad(probe.ReasonDialFailed))
	for range unsureAfter - 1 {
		r.round(unsure(probe.ReasonProberFault))
	}
	assert.Equal(t, healthy, r.verdict(p))
	r.round(bad(probe.ReasonDialFailed))
	assert.Equal(t, unhealthy, r.verdict(p), "and does not break a run")
}

func TestMetricsSeeEveryProbe(t *testing.T) {
	r := newRig(t, 8)
	require.NoError(t, r.engine.Add(proxyProbeOf("a")))
	for _, res := range []probe.Result{good(300 * time.Millisecond), bad(probe.ReasonDialFailed), unsure(probe.ReasonProberFault), good(2 * time.Second)} {
		r.round(res)
	}
	r.reg.MustRegister(newTargetCollector(r.engine.verdicts))
	require.NoError(t, testutil.GatherAndCompare(r.reg, strings.NewReader(`
# HELP proxy_operator_healthcheck_duration_seconds Duration of every probe through a proxy (namespace/name), failed ones too.
# TYPE proxy_operator_healthcheck_duration_seconds histogram
proxy_operator_healthcheck_duration_seconds_bucket{proxy="crawl/a",le="0.1"} 0
proxy_operator_healthcheck_duration_seconds_bucket{proxy="crawl/a",le="0.5"} 1
proxy_operator_healthcheck_duration_seconds_bucket{proxy="crawl/a",le="1"} 2
proxy_operator_healthcheck_duration_seconds_bucket{proxy="crawl/a",le="2.5"} 3
proxy_operator_healthcheck_duration_seconds_bucket{proxy="crawl/a",le="5"} 3
proxy_operator_healthcheck_duration_seconds_bucket{proxy="crawl/a",le="+Inf"} 3
proxy_operator_healthcheck_duration_seconds_sum{proxy="crawl/a"} 3.3
proxy_operator_healthcheck_duration_seconds_count{proxy="crawl/a"} 3
# HELP proxy_operator_healthcheck_failures_total Failed probes of a proxy (namespace/name).
# TYPE proxy_operator_healthcheck_failures_total counter
proxy_operator_healthcheck_failures_total{proxy="crawl/a"} 1
# HELP proxy_operator_probes_total Probes of all proxies by result (success, failure, inconclusive) and reason.
# TYPE proxy_operator_probes_total counter
proxy_operator_probes_total{reason="DialFailed",result="failure"} 1
proxy_operator_probes_total{reason="ProbeSucceeded",result="success"} 2
proxy_operator_probes_total{reason="ProberFault",result="inconclusive"} 1
# HELP proxy_operator_probe_targets Proxies that this prober probes, by verdict.
# TYPE proxy_operator_probe_targets gauge
proxy_operator_probe_targets{verdict="Healthy"} 1
proxy_operator_probe_targets{verdict="Unhealthy"} 0
proxy_operator_probe_targets{verdict="Unknown"} 0
`), "proxy_operator_healthcheck_duration_seconds", "proxy_operator_healthcheck_failures_total", "proxy_operator_probes_total", "proxy_operator_probe_targets"))
}

func TestTransitionsAndTroubleAreLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	r := newRig(t, 8)
	r.engine.log = slog.New(slog.NewTextHandler(&out, nil))
	require.NoError(t, r.engine.Add(proxyProbeOf("a")))
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

func TestALongMessageIsClippedToWhatTheAPITakes(t *testing.T) {
	r := newRig(t, 8)
	p := proxyProbeOf("a")
	require.NoError(t, r.engine.Add(p))
	long := good(time.Millisecond)
	long.Message = strings.Repeat("ä", 5000)
	r.round(long)
	assert.Equal(t, strings.Repeat("ä", maxMessage-1)+"…", r.write(p).status.Message)
}

func TestASeedFromAClockThatRanAhead(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	p.Status.LastProbeTime = at(24 * time.Hour)
	require.NoError(t, r.engine.Add(p))
	r.step(30 * time.Second)
	r.round(good(900 * time.Millisecond))
	assert.Equal(t, changeOfLatency, r.write(p).occasion, "reports are not held back for a day")

	bare := judged("b", healthy)
	bare.Status.LastProbeTime, bare.Status.LastTransitionTime, bare.Status.LatencyMillis = nil, nil, nil
	require.NoError(t, r.engine.Add(bare))
	assert.Equal(t, healthy, r.verdict(bare))
}
