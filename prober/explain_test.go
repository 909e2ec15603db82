package prober

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/health"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

func explain(t *testing.T, e *runner, path string) (int, string) {
	t.Helper()
	rec := httptest.NewRecorder()
	(&Prober{runner: e}).Explainer().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
	return rec.Code, rec.Body.String()
}

func TestExplainReturnsTheLastProbesByStage(t *testing.T) {
	r := newRig(t, 1)
	p := proxyProbeOf("a")
	require.NoError(t, r.runner.Add(p))
	for i := range health.RecentProbes + 3 {
		result := leaves("192.0.2.9")
		result.Latency, result.HTTPStatus, result.Target = time.Duration(i)*time.Millisecond, 204, target443
		result.Stages[probe.StageDial], result.Stages[probe.StageBody] = 1500*time.Microsecond, time.Duration(i)*time.Millisecond
		r.next(result)
	}
	r.next(bad(probe.ReasonConnectTimeout))
	code, body := explain(t, r.runner, "/debug/probes/crawl/a")
	require.Equal(t, http.StatusOK, code)
	var got Explanation
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	assert.Equal(t, healthy, got.Verdict)
	assert.Equal(t, int32(1), got.Failures)
	assert.Equal(t, "instance-1", got.InstanceID)
	assert.Equal(t, "192.0.2.9", got.ExitIP)
	assert.NotNil(t, got.NextProbe)
	require.Len(t, got.Probes, health.RecentProbes)
	assert.Equal(t, "failure", got.Probes[0].Outcome)
	assert.Equal(t, probe.ReasonConnectTimeout, got.Probes[0].Reason)
	second := got.Probes[1]
	assert.Equal(t, 1.5+float64(health.RecentProbes+2), second.LatencyMillis, "of all stages; the newest first")
	assert.Equal(t, 204, second.HTTPStatus)
	assert.Equal(t, 1.5, second.StageMillis["dial"])
	assert.NotContains(t, second.StageMillis, "tls", "did not run")

	code, body = explain(t, r.runner, "/debug/probes/crawl/other")
	assert.Equal(t, http.StatusNotFound, code)
	assert.Contains(t, body, "another shard may")
}

func TestExplainBeforeTheFirstProbe(t *testing.T) {
	r := newRig(t, 1)
	require.NoError(t, r.runner.Add(proxyProbeOf("a")))
	_, body := explain(t, r.runner, "/debug/probes/crawl/a")
	assert.Contains(t, body, `"verdict": "Unknown"`)
	assert.Contains(t, body, `"probes": []`)
}

func TestSharedExitsAreCounted(t *testing.T) {
	r := newRig(t, 10)
	for name, exit := range map[string]string{"a": "192.0.2.1", "b": "192.0.2.1", "c": "192.0.2.1", "d": "192.0.2.2"} {
		require.NoError(t, r.runner.Add(proxyProbeOf(name)))
		r.runner.finish(r.one(), leaves(exit))
	}
	require.NoError(t, r.runner.Add(proxyProbeOf("e")))
	r.runner.finish(r.one(), good(time.Millisecond))
	assert.Equal(t, 3, r.runner.sharedExits())
	found, _ := r.runner.explain(keyOf(proxyProbeOf("b")))
	assert.Equal(t, 2, found.SharedBy)
	require.NoError(t, testutil.GatherAndCompare(r.reg, strings.NewReader(`
# HELP proxy_operator_probe_shared_exits Proxies of this prober that share their exit address, as seen by echo endpoints, with another proxy.
# TYPE proxy_operator_probe_shared_exits gauge
proxy_operator_probe_shared_exits 3
`), "proxy_operator_probe_shared_exits"))
}

// The proxy quotes the credentials wherever it can.
func TestExplainContainsNoCredentials(t *testing.T) {
	const canary = "CANARY-4c1d"
	s := newScene(t, "a")
	s.probe.Spec.HealthCheck.Timeout = metav1.Duration{Duration: patience}
	for _, behaviour := range []probetest.Behaviour{
		s.works, probetest.Say("HTTP/1.1 407 " + canary + "\r\n\r\n"), probetest.Say(canary), probetest.Say("HTTP/1.1 200 OK\r\n\r\n" + canary),
	} {
		r := newRig(t, 1)
		require.NoError(t, r.runner.Add(s.probe))
		s.proxy.Set(behaviour)
		secret := credentials.New("user-"+canary, canary)
		prober := probe.New(s.ca.Pool())
		j := r.one()
		result := prober.Probe(j.ctx, probe.Request{
			Host: j.spec.host, Port: j.spec.port, HealthCheck: j.spec.healthCheck, Credentials: &secret,
		})
		r.runner.finish(j, result)
		_, body := explain(t, r.runner, "/debug/probes/crawl/a")
		assert.Contains(t, body, string(result.Reason))
		assert.NotContains(t, body, canary)
		assert.NotContains(t, body, "Basic ")
	}
}
