package webhooks

import (
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

func testTiming() proxy.Timing {
	return proxy.Timing{ProvisioningDeadline: 10 * time.Minute, ProvisioningPoll: 5 * time.Second, DriftPoll: time.Minute, RemovalPoll: 7 * time.Second, BudgetPoll: 3 * time.Second, QuotaRetry: 5 * time.Minute}
}

// observationOf is one at noon of p, without an instance.
func observationOf(p *v1alpha1.Proxy) *proxy.Observation {
	o := &proxy.Observation{Proxy: p, Provider: &proxy.Provider{}, Instance: proxy.Absent(), Timing: testTiming(), Now: proxytest.Noon()}
	o.Wanted = o.Want()
	return o
}

// runningPod is the Pod of proxytest.Managed, up to date.
func runningPod() proxy.Instance {
	return proxy.Instance{
		State: proxy.InstanceRunning, ProviderID: "crawl/proxy-x", ID: proxytest.PodID,
		IP: "10.1.2.3", Port: 3128, SpecHash: proxytest.Hash(proxytest.Managed()), CreatedAt: proxytest.Noon().Add(-time.Minute),
	}
}

func testProvider() *config.Provider { return &config.Provider{Pods: proxytest.Template()} }

// probeSpec is the spec of the ProxyProbe that a decision lists when o's instance
// runs.
func probeSpec(t testing.TB, o *proxy.Observation) *v1alpha1.ProxyProbeSpec {
	t.Helper()
	o.Instance = runningPod()
	o.Wanted = o.Want()
	d, err := proxy.Decide(o)
	require.NoError(t, err)
	require.NotNil(t, d.Probe)
	return d.Probe
}

func indented(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	require.NoError(t, err)
	return append(b, '\n')
}

// request is a sync or finalize request with those children.
type request struct {
	proxy      *v1alpha1.Proxy
	pods       []*corev1.Pod
	probes     []*v1alpha1.ProxyProbe
	secrets    []*corev1.Secret
	finalizing bool
}

func (r request) body(t testing.TB) []byte {
	t.Helper()
	req := metacontroller.Request{
		Controller: json.RawMessage(`{"kind":"CompositeController"}`),
		Parent:     mustJSON(t, r.proxy),
		Children:   metacontroller.Objects{podKind: {}, probeKind: {}},
		Related:    metacontroller.Objects{secretKind: {}},
		Finalizing: r.finalizing,
	}
	for _, p := range r.pods {
		req.Children[podKind][p.Namespace+"/"+p.Name] = mustJSON(t, p)
	}
	for _, p := range r.probes {
		req.Children[probeKind][p.Namespace+"/"+p.Name] = mustJSON(t, p)
	}
	for _, s := range r.secrets {
		req.Related[secretKind][s.Namespace+"/"+s.Name] = mustJSON(t, s)
	}
	return mustJSON(t, req)
}

// customizeBody is the customize request about the same Proxy.
func (r request) customizeBody(t testing.TB) []byte {
	t.Helper()
	return mustJSON(t, metacontroller.CustomizeRequest{Controller: json.RawMessage(`{}`), Parent: mustJSON(t, r.proxy)})
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return b
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// testOptions are hooks' options at noon, with the providers "pods" and
// proxytest.CloudProvider, and no adapter.
func testOptions() Options {
	return Options{
		Providers: config.Providers{"pods": testProvider(), proxytest.CloudProvider: &config.Provider{Provider: proxy.Provider{Cloud: proxytest.GCP()}}}, MaxReplacing: intstr.FromString("20%"), Timing: testTiming(),
		Clock: clocktesting.NewFakePassiveClock(proxytest.Noon()), Log: quiet(), Registry: prometheus.NewRegistry(),
	}
}

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
)

// object and list are JSON as Unstructured holds it.
type (
	object = map[string]any
	list   = []any
)

const newToken, oldToken = "0123456789abcdef-new", "0123456789abcdef-old"

func tokenFile(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}
