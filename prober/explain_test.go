package prober

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

func explain(t *testing.T, e *engine, path string) (int, string) {
	t.Helper()
	rec := httptest.NewRecorder()
	(&Prober{engine: e}).Explainer().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
	return rec.Code, rec.Body.String()
}

func TestTheLastProbesAreExplainedStageByStage(t *testing.T) {
	r := newRig(t, 1)
	p := proxyProbeOf("a")
	require.NoError(t, r.engine.Add(p))
	for i := range remembered + 3 {
		result := leaves("192.0.2.9")
		result.Latency, result.HTTPStatus, result.Target = time.Duration(i)*time.Millisecond, 204, site443
		result.Stages[probe.StageDial], result.Stages[probe.StageBody] = 1500*time.Microsecond, time.Duration(i)*time.Millisecond
		r.next(result)
	}
	r.next(bad(probe.ReasonConnectTimeout))
	code, body := explain(t, r.engine, "/debug/probes/crawl/a")
	require.Equal(t, http.StatusOK, code)
	var got Explanation
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	assert.Equal(t, healthy, got.Verdict)
	assert.Equal(t, int32(1), got.Failures)
	assert.Equal(t, "instance-1", got.InstanceID)
	assert.Equal(t, "192.0.2.9", got.ExitIP)
	assert.NotNil(t, got.NextProbe)
	require.Len(t, got.Probes, remembered)
	assert.Equal(t, "failure", got.Probes[0].Outcome)
	assert.Equal(t, probe.ReasonConnectTimeout, got.Probes[0].Reason)
	second := got.Probes[1]
	assert.Equal(t, 1.5+float64(remembered+2), second.LatencyMillis, "of all stages; the newest first")
	assert.Equal(t, 204, second.HTTPStatus)
	assert.Equal(t, 1.5, second.StageMillis["dial"])
	assert.NotContains(t, second.StageMillis, "tls", "did not run")

	code, body = explain(t, r.engine, "/debug/probes/crawl/other")
	assert.Equal(t, http.StatusNotFound, code)
	assert.Contains(t, body, "another shard may")
}

func TestAnExplanationWithoutAProbe(t *testing.T) {
	r := newRig(t, 1)
	require.NoError(t, r.engine.Add(proxyProbeOf("a")))
	_, body := explain(t, r.engine, "/debug/probes/crawl/a")
	assert.Contains(t, body, `"verdict": "Unknown"`)
	assert.Contains(t, body, `"probes": []`)
}

func TestSharedExitsAreCounted(t *testing.T) {
	r := newRig(t, 10)
	for name, exit := range map[string]string{"a": "192.0.2.1", "b": "192.0.2.1", "c": "192.0.2.1", "d": "192.0.2.2"} {
		require.NoError(t, r.engine.Add(proxyProbeOf(name)))
		r.engine.finish(r.one(), leaves(exit))
	}
	require.NoError(t, r.engine.Add(proxyProbeOf("e")))
	r.engine.finish(r.one(), good(time.Millisecond))
	assert.Equal(t, 3, r.engine.sharedExits())
	found, _ := r.engine.explain(keyOf(proxyProbeOf("b")))
	assert.Equal(t, 2, found.SharedBy)
	assert.Equal(t, 3.0, testutil.ToFloat64(newSharedExits(r.engine.sharedExits)))
}

// A proxy that quotes the credentials wherever it can, and whoever looks at it.
func TestNoExplanationShowsCredentials(t *testing.T) {
	const canary = "CANARY-4c1d"
	s := newScene(t, "a")
	s.probe.Spec.HealthCheck.Timeout = metav1.Duration{Duration: patience}
	for _, behaviour := range []probetest.Behaviour{
		s.works, probetest.Say("HTTP/1.1 407 " + canary + "\r\n\r\n"), probetest.Say(canary), probetest.Say("HTTP/1.1 200 OK\r\n\r\n" + canary),
	} {
		r := newRig(t, 1)
		require.NoError(t, r.engine.Add(s.probe))
		s.proxy.Set(behaviour)
		secret := credentials.New("user-"+canary, canary)
		prober := probe.New(s.ca.Pool())
		j := r.one()
		result := prober.Probe(j.ctx, probe.Request{
			Host: j.order.host, Port: j.order.port, HealthCheck: j.order.healthCheck, Credentials: &secret,
		})
		r.engine.finish(j, result)
		_, body := explain(t, r.engine, "/debug/probes/crawl/a")
		assert.Contains(t, body, string(result.Reason))
		assert.NotContains(t, body, canary)
		assert.NotContains(t, body, "Basic ")
	}
}

// What is remembered of ten thousand proxies is a few megabytes.
func TestMemoryOfTheLastProbesIsBounded(t *testing.T) {
	const proxies = 1000
	fleet := make([]recent, proxies)
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what the first one leaves in pools goes with the second
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	for n := range 3 * remembered {
		for i := range fleet {
			fleet[i].add(probe.Result{
				Reason: probe.ReasonProbeSucceeded, Start: epoch().Add(time.Duration(n) * time.Second),
				Message: strings.Repeat("m", 100) + strconv.Itoa(i), Target: site443,
			})
		}
	}
	each := (heap() - before) / proxies
	assert.Less(t, each, 600.0, "bytes for each proxy")
	runtime.KeepAlive(fleet)
}

// However many proxies come and go, and whatever happens to them, no series stay
// behind that are not of the fixed set.
func TestSeriesAreBounded(t *testing.T) {
	r := newRig(t, 10)
	count := func() int {
		n, err := testutil.GatherAndCount(r.reg)
		require.NoError(t, err)
		return n
	}
	before := count()
	for i := range 200 {
		p := proxyProbeOf("p" + strconv.Itoa(i))
		require.NoError(t, r.engine.Add(p))
		result := fails(probe.ReasonUpstreamFailed)
		for s := range result.Stages {
			result.Stages[s] = time.Millisecond
		}
		result.Stages[probe.StageSetup] = 0
		r.engine.finish(r.one(), result)
		require.NoError(t, r.engine.Delete(p))
	}
	assert.Equal(t, before+1, count(), "one for the reason")
}
