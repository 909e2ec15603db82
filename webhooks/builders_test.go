package webhooks

import (
	"encoding/json"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// noon is the time of all tests that do not say otherwise.
func noon() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) }

func testTiming() Timing {
	return Timing{ProvisioningDeadline: 10 * time.Minute, ProvisioningPoll: 5 * time.Second, DriftPoll: time.Minute, DeletionPoll: 7 * time.Second, QuotaRetry: 5 * time.Minute}
}

func testProvider() *Provider {
	return &Provider{Name: "pods", Kubernetes: KubernetesProvider{
		Image:           "registry.example.com/squid:5.7",
		ImagePullPolicy: corev1.PullIfNotPresent,
		CPU:             resource.MustParse("100m"),
		Memory:          resource.MustParse("128Mi"),
		AllowClients:    parsePrefixes("10.0.0.0/8"),
		AllowPorts:      []int{80, 443},
	}}
}

func managedProxy() *v1alpha1.Proxy {
	hc := (*v1alpha1.HealthCheck)(nil).OrDefault()
	return &v1alpha1.Proxy{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "Proxy"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "fra-1", Namespace: "crawl", UID: "11111111-2222-3333-4444-555555555555", Generation: 3,
			CreationTimestamp: metav1.NewTime(noon().Add(-time.Hour)),
		},
		Spec: v1alpha1.ProxySpec{Mode: v1alpha1.ModeManaged, Provider: "pods", Port: 3128, HealthCheck: &hc},
	}
}

func externalProxy() *v1alpha1.Proxy {
	p := managedProxy()
	p.Spec.Mode, p.Spec.Provider, p.Spec.Port = v1alpha1.ModeExternal, "", 0
	p.Spec.Endpoint = &v1alpha1.Endpoint{Host: "proxy.vendor.example", Port: 8080}
	return p
}

const testInstanceID = "pod-uid-1"

// wantedHash is the hash that p asks for.
func wantedHash(p *v1alpha1.Proxy) string {
	content := ""
	if p.Spec.CloudInit != nil {
		content = p.Spec.CloudInit.Inline
	}
	return v1alpha1.SpecHash(p.Spec.Placement, content, p.EffectivePort())
}

// runningInstance is the Pod of managedProxy, up to date.
func runningInstance() Instance {
	return Instance{
		State: InstanceRunning, ProviderID: "crawl/proxy-x", ID: testInstanceID,
		IP: "10.1.2.3", Port: 3128, SpecHash: wantedHash(managedProxy()), CreatedAt: noon().Add(-time.Minute),
	}
}

func observation(p *v1alpha1.Proxy) Observation {
	return Observation{Proxy: p, Provider: testProvider(), Instance: absentInstance(), Timing: testTiming(), Now: noon()}
}

// probeWith is a ProxyProbe whose verdict is about that instance.
func probeWith(instanceID string, v v1alpha1.Verdict) *v1alpha1.ProxyProbe {
	latency, last := int64(42), metav1.NewTime(noon().Add(-30*time.Second))
	return &v1alpha1.ProxyProbe{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "ProxyProbe"},
		ObjectMeta: metav1.ObjectMeta{Name: "fra-1", Namespace: "crawl", UID: "probe-uid"},
		Spec:       v1alpha1.ProxyProbeSpec{InstanceID: instanceID, Host: "10.1.2.3", Port: 3128},
		Status: v1alpha1.ProxyProbeStatus{
			InstanceID: instanceID, Verdict: v, Reason: "Probe" + string(v), Message: "what the prober saw",
			LatencyMillis: &latency, LastProbeTime: &last, LastTransitionTime: &last, ExitIP: "198.51.100.7",
		},
	}
}

// withCondition gives p a condition that turned to its status at that time.
func withCondition(p *v1alpha1.Proxy, kind string, s metav1.ConditionStatus, reason string, at time.Time) *v1alpha1.Proxy {
	p.Status.Conditions = v1alpha1.SetCondition(p.Status.Conditions, metav1.Condition{Type: kind, Status: s, Reason: reason, Message: "before"}, at)
	return p
}

// podOf is the Pod that the API server would hold for p.
func podOf(t testing.TB, p *v1alpha1.Proxy, phase corev1.PodPhase, ip string) *corev1.Pod {
	t.Helper()
	child := podChild(p, testProvider(), wantedHash(p))
	b, err := json.Marshal(child)
	require.NoError(t, err)
	var pod corev1.Pod
	require.NoError(t, json.Unmarshal(b, &pod))
	pod.UID, pod.CreationTimestamp = testInstanceID, metav1.NewTime(noon().Add(-time.Minute))
	pod.Status = corev1.PodStatus{Phase: phase, PodIP: ip}
	return &pod
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
// cloudProvider, and no adapter.
func testOptions() Options {
	return Options{
		Providers: Providers{"pods": testProvider(), cloudProvider: testCloudProvider()}, MaxReplacing: Limit{20, true}, Timing: testTiming(),
		Clock: clocktesting.NewFakePassiveClock(noon()), Log: quiet(), Registry: prometheus.NewRegistry(),
	}
}
