package webhooks

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

func TestContractMetrics(t *testing.T) {
	o := testOptions()
	reg := prometheus.NewRegistry()
	o.Registry = reg
	h := New(o)
	srv := serveHooks(t, h, nil)
	call := func(r request) {
		hook := "sync"
		if r.finalizing {
			hook = "finalize"
		}
		send(t, http.MethodPost, srv.URL+"/hooks/"+hook, asJSON(), bytes.NewReader(r.body(t)))
	}
	p := proxytest.Managed()
	pod, probe := proxytest.Pod(t, p, corev1.PodRunning, "10.0.0.1"), proxytest.Probe(proxytest.PodID, v1alpha1.VerdictHealthy)
	stray := proxytest.Pod(t, p, corev1.PodRunning, "10.0.0.2")
	stray.Name = "stray"
	call(request{proxy: p, pods: []*corev1.Pod{pod, stray}, probes: []*v1alpha1.ProxyProbe{probe}})
	edited := proxytest.Managed()
	edited.Spec.Port = 3129
	call(request{proxy: edited, pods: []*corev1.Pod{pod}, probes: []*v1alpha1.ProxyProbe{probe}})
	send(t, http.MethodPost, srv.URL+"/hooks/sync", asJSON(), strings.NewReader("{"))

	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP proxy_operator_hook_children_deleted_total Observed children that an answer left out, so that Metacontroller deletes them, by the reason in the Proxy's status.
# TYPE proxy_operator_hook_children_deleted_total counter
proxy_operator_hook_children_deleted_total{reason="Replacing"} 2
proxy_operator_hook_children_deleted_total{reason="Stray"} 1
# HELP proxy_operator_hook_children_desired_total Children that answers listed, to be kept or created, by kind. Divided by the sync requests it is the share of the fleet that is wanted.
# TYPE proxy_operator_hook_children_desired_total counter
proxy_operator_hook_children_desired_total{kind="Pod"} 1
proxy_operator_hook_children_desired_total{kind="ProxyProbe"} 1
# HELP proxy_operator_hook_requests_total Hook requests by hook and HTTP status code.
# TYPE proxy_operator_hook_requests_total counter
proxy_operator_hook_requests_total{code="200",hook="sync"} 2
proxy_operator_hook_requests_total{code="400",hook="sync"} 1
# HELP proxy_operator_proxies_seen Managed Proxies that this process has seen lately; a percentage in --max-replacing is of them.
# TYPE proxy_operator_proxies_seen gauge
proxy_operator_proxies_seen{provider="pods"} 1
# HELP proxy_operator_replacements_failed Those among them whose Proxy was not Ready within --provisioning-deadline. Where this is the limit, the others wait until one trial succeeds.
# TYPE proxy_operator_replacements_failed gauge
proxy_operator_replacements_failed{provider="pods"} 0
# HELP proxy_operator_replacements_limit How many such replacements may be under way.
# TYPE proxy_operator_replacements_limit gauge
proxy_operator_replacements_limit{provider="pods"} 1
# HELP proxy_operator_replacements_under_way Replacements of running instances because of edited specs, from the beginning until the Proxy is Ready again.
# TYPE proxy_operator_replacements_under_way gauge
proxy_operator_replacements_under_way{provider="pods"} 1
`), "proxy_operator_hook_children_deleted_total", "proxy_operator_hook_children_desired_total", "proxy_operator_hook_requests_total",
		"proxy_operator_proxies_seen", "proxy_operator_replacements_failed", "proxy_operator_replacements_limit", "proxy_operator_replacements_under_way"))
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	assert.Empty(t, problems)

	call(request{proxy: edited, finalizing: true})
	assert.Empty(t, h.budget.states()["pods"].underWay, "a deleted Proxy holds no place")
}

// A secret of the cloud, and the bearer token, are nowhere: not in an answer,
// whatever goes wrong, not in a log line, not in a metric.
func TestCanary(t *testing.T) {
	const canary, tokenCanary = "CANARY-7f3a-user-data", "CANARY-91bc-bearer-token"
	o := testOptions()
	reg := prometheus.NewRegistry()
	var logs bytes.Buffer
	o.Registry, o.CloudInitSecrets = reg, true
	o.Log = slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	tokens, err := config.NewBearerTokens(tokenFile(t, tokenCanary), o.Log)
	require.NoError(t, err)
	srv := serveHooks(t, New(o), tokens)
	header := http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + tokenCanary}}

	var everything strings.Builder
	r := request{proxy: proxytest.SecretRef(), secrets: []*corev1.Secret{bootSecret(canary)}}
	good := string(r.body(t))
	r.secrets[0].Labels = nil
	unlabelled := string(r.body(t))
	r.secrets[0] = bootSecret("x")
	r.secrets[0].Data = map[string][]byte{"other": []byte(canary)}
	encoded := strings.TrimSuffix(strings.TrimPrefix(string(mustJSON(t, []byte(canary))), `"`), `"`)
	for _, body := range []string{
		good, unlabelled, string(r.body(t)), good[:len(good)-5], strings.Replace(good, encoded, canary, 1),
		strings.Replace(good, `"`+encoded+`"`, `{"`+canary+`":1}`, 1),
		strings.Replace(good, `"port":3128`, `"port":"x"`, 1),
		strings.Replace(good, `"mode":"Managed"`, `"mode":"Rented"`, 1),
	} {
		require.True(t, strings.Contains(body, canary) || strings.Contains(body, encoded))
		for _, hook := range []string{"sync", "finalize", "customize"} {
			_, answer := send(t, http.MethodPost, srv.URL+"/hooks/"+hook, header, strings.NewReader(body))
			everything.WriteString(answer)
		}
	}
	header.Set("Authorization", "Bearer "+tokenCanary+"x")
	_, answer := send(t, http.MethodPost, srv.URL+"/hooks/sync", header, strings.NewReader(good))
	everything.WriteString(answer)

	rec := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	everything.WriteString(rec.Body.String() + logs.String())
	require.Greater(t, everything.Len(), 5000)
	for _, secret := range []string{canary, encoded, tokenCanary} {
		assert.NotContains(t, everything.String(), secret)
	}
}

// TestReasonsAreDocumented looks for each reason that `kubectl get px` may show,
// as the sources name it, in the guide that explains them.
func TestReasonsAreDocumented(t *testing.T) {
	guide, err := os.ReadFile("../docs/operate.md")
	require.NoError(t, err)
	found := 0
	for _, file := range []string{"../api/v1alpha1/names.go", "proxy/status.go"} {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^\s*(?:const )?Reason\w+\s*= "(\w+)"`).FindAllStringSubmatch(string(source), -1) {
			found++
			assert.Contains(t, string(guide), "`"+m[1]+"`")
		}
	}
	assert.Greater(t, found, 15, "the sources have changed their shape")
}
