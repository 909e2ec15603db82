package webhooks

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(stopping{m}) }

// stopping stops the API server after the tests and before the search for leaks.
type stopping struct{ *testing.M }

func (s stopping) Run() int {
	code := s.M.Run()
	if err := api.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// api is a real API server with our CRDs, for the tests that need one.
var api apiServer

type apiServer struct {
	controlplanetest.Shared
	once sync.Once
	err  error
}

// client returns one for children of that kind in the namespace crawl, which
// holds to the Pod Security Standard "restricted".
func (s *apiServer) client(t *testing.T, kind string) dynamic.ResourceInterface {
	t.Helper()
	cp := s.Get(t)
	s.once.Do(func() { s.err = s.prepare(t, cp) })
	require.NoError(t, s.err)
	client, err := dynamic.NewForConfig(cp.RESTConfig())
	require.NoError(t, err)
	resource := corev1.SchemeGroupVersion.WithResource("pods")
	if kind == "ProxyProbe" {
		resource = v1alpha1.ProxyProbeResource()
	}
	return client.Resource(resource).Namespace("crawl")
}

func (s *apiServer) prepare(t *testing.T, cp *controlplane.ControlPlane) error {
	if err := controlplane.InstallCRDs(t.Context(), cp.RESTConfig(), crd.Manifests()...); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cp.RESTConfig())
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "crawl", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	return controlplane.EnsureServiceAccount(t.Context(), client, namespace.Name)
}

// update rewrites the golden files: go test ./webhooks -update
var update = flag.Bool("update", false, "rewrite the golden files under testdata")

// golden compares got with the file testdata/name.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run go test ./webhooks -update and review the new file")
	require.Equal(t, string(want), string(got), "%s differs; if that is meant, run go test ./webhooks -update", path)
}

// fakeRecorder records Events.
type fakeRecorder struct {
	mu     sync.Mutex
	about  []corev1.ObjectReference
	events []proxy.Event
}

func (f *fakeRecorder) Record(about corev1.ObjectReference, e proxy.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.about, f.events = append(f.about, about), append(f.events, e)
}

// take returns the reasons so far, and forgets them.
func (f *fakeRecorder) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	reasons := []string{}
	for _, e := range f.events {
		reasons = append(reasons, e.Reason)
	}
	f.about, f.events = nil, nil
	return reasons
}

// world is one Proxy with its children, as the API server would hold them. It
// does what Metacontroller, a kubelet and the prober do, one step at a time.
type world struct {
	proxy      *v1alpha1.Proxy
	pod        *corev1.Pod
	probe      *v1alpha1.ProxyProbe
	cloud      *fakeAdapter     // holds the VM; nil for Pods
	secrets    []*corev1.Secret // related ones, as Metacontroller sends them
	finalizing bool
	gone       bool
	broken     bool   // the prober finds it unhealthy
	pods       int    // how many were made
	answer     []byte // the last one
}

// sync calls the hook and applies the answer as Metacontroller does under
// OnDelete for Pods and InPlace for ProxyProbes.
func (w *world) sync(t *testing.T, h *Hooks) {
	t.Helper()
	r := request{proxy: w.proxy, secrets: w.secrets, finalizing: w.finalizing}
	if w.pod != nil {
		r.pods = append(r.pods, w.pod)
	}
	if w.probe != nil {
		r.probes = append(r.probes, w.probe)
	}
	hook := "sync"
	if w.finalizing {
		hook = "finalize"
	}
	var resp metacontroller.Response
	w.answer = answerTo(t, h, hook, r.body(t))
	require.NoError(t, json.Unmarshal(w.answer, &resp))
	w.gone = resp.Finalized
	w.proxy.Status = v1alpha1.ProxyStatus{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(resp.Status, &w.proxy.Status))
	w.applyChildren(t, &resp)
}

func (w *world) applyChildren(t *testing.T, resp *metacontroller.Response) {
	t.Helper()
	var pod, probe []byte
	for _, c := range resp.Children {
		switch c.GetKind() {
		case "Pod":
			pod = mustJSON(t, c)
		case "ProxyProbe":
			probe = mustJSON(t, c)
		}
	}
	now := metav1.NewTime(proxytest.Noon())
	switch {
	case pod == nil && w.pod != nil:
		w.pod.DeletionTimestamp = &now
	case pod != nil && w.pod == nil:
		w.pods++
		w.pod = &corev1.Pod{}
		require.NoError(t, json.Unmarshal(pod, w.pod))
		require.NotEmpty(t, w.pod.Spec.Containers, "the API server refuses a Pod that is only named")
		w.pod.UID, w.pod.CreationTimestamp = types.UID(fmt.Sprintf("pod-%d", w.pods)), now
	}
	if probe == nil {
		w.probe = nil
		return
	}
	wanted := &v1alpha1.ProxyProbe{}
	require.NoError(t, json.Unmarshal(probe, wanted))
	if w.probe != nil {
		wanted.Status = w.probe.Status
	}
	w.probe = wanted
}

// evict ends a Pod that has served for an hour.
func (w *world) evict() {
	w.pod.Status.Phase, w.pod.Status.Reason = corev1.PodFailed, "Evicted"
	w.pod.CreationTimestamp = metav1.NewTime(proxytest.Noon().Add(-time.Hour))
}

// leasable reports whether the discovery API would offer the proxy.
func (w *world) leasable() bool {
	s := w.proxy.Status
	return s.Phase == v1alpha1.PhaseReady && s.ObservedGeneration == w.proxy.Generation && s.IP != "" && s.Port != 0
}

// kubelet starts a Pod, or takes a terminating one away. A cloud does the like.
func (w *world) kubelet() {
	if w.cloud != nil {
		w.cloud.step()
	}
	switch {
	case w.pod == nil:
	case w.pod.DeletionTimestamp != nil:
		w.pod = nil
	default:
		w.pod.Status.Phase, w.pod.Status.PodIP = corev1.PodRunning, fmt.Sprintf("10.0.0.%d", w.pods)
	}
}

// prober finds the proxy healthy, unless it is broken.
func (w *world) prober() {
	switch {
	case w.probe == nil:
	case w.broken:
		w.probe.Status = v1alpha1.ProxyProbeStatus{InstanceID: w.probe.Spec.InstanceID, Verdict: v1alpha1.VerdictUnhealthy, Reason: "ConnectTimeout"}
	default:
		w.probe.Status = v1alpha1.ProxyProbeStatus{InstanceID: w.probe.Spec.InstanceID, Verdict: v1alpha1.VerdictHealthy, Reason: "ProbeSucceeded"}
	}
}

// offersOnlyWhatIsThere: a Ready Proxy points at a living Pod, on its port.
func (w *world) offersOnlyWhatIsThere(t *testing.T) {
	t.Helper()
	s := w.proxy.Status
	if s.Phase != v1alpha1.PhaseReady {
		return
	}
	if w.cloud != nil {
		require.NotNil(t, w.cloud.vm)
		assert.Equal(t, []any{w.cloud.vm.InstanceID, w.cloud.vm.IP, w.cloud.vm.Port}, []any{s.InstanceID, s.IP, s.Port})
		return
	}
	require.NotNil(t, w.pod)
	assert.Equal(t, string(w.pod.UID), s.InstanceID)
	assert.Equal(t, w.pod.Status.PodIP, s.IP)
	assert.Equal(t, w.pod.Spec.Containers[0].Ports[0].ContainerPort, s.Port)
}

// round lets everybody act once.
func (w *world) round(t *testing.T, h *Hooks) {
	t.Helper()
	w.sync(t, h)
	w.offersOnlyWhatIsThere(t)
	w.kubelet()
	w.prober()
}

func (w *world) until(t *testing.T, h *Hooks, what string, ok func() bool) {
	t.Helper()
	for range 12 {
		if w.round(t, h); ok() {
			return
		}
	}
	require.Fail(t, "never "+what, "%+v", w.proxy.Status)
}
