package hooktest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
)

const (
	fleetSize = 500
	// mostRatio bounds the cost of our decisions.
	mostRatio = 1.1
	// rounds is the number of tries: load only ever makes a run slower.
	rounds = 2
)

// BenchmarkFleet is the time from the creation of 500 Proxies at once until all
// are Ready, under the real Metacontroller, with our hooks and with trivial ones
// that want the same children. Kubelet and prober are played and take next to no
// time. The two take turns (ours, trivial, trivial, ours), and of each the best
// run counts, so that a busy machine disturbs both alike.
func BenchmarkFleet(b *testing.B) {
	driver := Driver{Strategy: upstream.DynamicApply}
	RealDrivers(b) // or skip
	ours := release{providers: providers, timing: proxy.Timing{
		ProvisioningDeadline: 10 * time.Minute, ProvisioningPoll: 5 * time.Second, DriftPoll: time.Minute, RemovalPoll: 5 * time.Second, BudgetPoll: 5 * time.Second,
	}}.hooks(b).Handler(nil)
	plain := newTrivial(b, ours)
	for b.Loop() {
		var oursTook, plainTook []time.Duration
		ratio := 0.0
		for range rounds {
			oursTook = append(oursTook, converge(b, driver, ours))
			plainTook = append(plainTook, converge(b, driver, plain), converge(b, driver, plain))
			oursTook = append(oursTook, converge(b, driver, ours))
			ratio = slices.Min(oursTook).Seconds() / slices.Min(plainTook).Seconds()
			if ratio <= mostRatio {
				break
			}
		}
		b.Logf("%d Proxies with our hooks %s, with trivial ones %s", fleetSize, oursTook, plainTook)
		b.ReportMetric(slices.Min(oursTook).Seconds(), "s/ours")
		b.ReportMetric(slices.Min(plainTook).Seconds(), "s/trivial")
		b.ReportMetric(ratio, "ratio")
		if ratio > mostRatio {
			b.Errorf("our hooks make it take %.2f times as long, want at most %.2f", ratio, mostRatio)
		}
	}
}

// converge brings a fleet up and returns how long that took.
func converge(b *testing.B, d Driver, hooks http.Handler) time.Duration {
	b.Helper()
	run := &scope{TB: b}
	defer run.end()
	l := New(run, shared.Get(b))
	l.Drive(d, hooks)
	l.PlayKubelet()
	l.PlayProber()
	ready := l.AwaitReady(1)
	l.CreateProxies(Managed("first", provider))
	<-ready // all goroutines have started

	ready = l.AwaitReady(fleetSize + 1)
	began := time.Now()
	l.CreateProxies(fleet(fleetSize)...)
	select {
	case <-ready:
	case <-time.After(5 * time.Minute):
		b.Fatalf("%d of %d are Ready", l.inPhase(v1alpha1.PhaseReady), fleetSize)
	}
	return time.Since(began)
}

// scope is a part of a benchmark that cleans up when it ends. A sub-benchmark
// would do, but then its parent could report no metrics.
type scope struct {
	testing.TB
	cleanups []func()
}

// Cleanup implements testing.TB.
func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) end() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
}

// trivial are hooks without decisions: they fill names into the children that our hooks return, and
// set the phase of the Proxy.
type trivial struct {
	pod, probe string
}

// Placeholders in the children's text.
const (
	sampleName = "sample-proxy"
	sampleUID  = "11111111-2222-3333-4444-555555555555"
	samplePod  = "66666666-7777-8888-9999-000000000000"
	sampleIP   = "10.255.255.254"
)

// newTrivial takes the children from ours.
func newTrivial(t testing.TB, ours http.Handler) *trivial {
	t.Helper()
	running := fmt.Sprintf(`{"default/%s":{"apiVersion":"v1","kind":"Pod","metadata":{"name":%[1]q,"namespace":"default","uid":%q},"status":{"phase":"Running","podIP":%q}}}`,
		v1alpha1.InstanceName(sampleUID), samplePod, sampleIP)
	none, both := childrenFor(t, ours, `{}`), childrenFor(t, ours, running)
	require.Len(t, none, 1)
	require.Len(t, both, 2)
	return &trivial{pod: string(none[0]), probe: string(both[1])}
}

// childrenFor are the children that hooks return when they observe those Pods.
func childrenFor(t testing.TB, hooks http.Handler, pods string) []json.RawMessage {
	t.Helper()
	parent := fmt.Sprintf(`{"apiVersion":"crawl.example.com/v1alpha1","kind":"Proxy","metadata":{"name":%q,"namespace":"default","uid":%q,"generation":1},"spec":{"mode":"Managed","provider":%q}}`,
		sampleName, sampleUID, provider)
	body := fmt.Sprintf(`{"controller":{},"parent":%s,"children":{"Pod.v1":%s,"ProxyProbe.crawl.example.com/v1alpha1":{}},"related":{},"finalizing":false}`, parent, pods)
	r := httptest.NewRequest(http.MethodPost, "/hooks/sync", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	hooks.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	var answer struct{ Children []json.RawMessage }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	return answer.Children
}

// trivialRequest is the part of a request that a trivial hook reads.
type trivialRequest struct {
	Parent struct {
		Metadata struct{ Name, UID string }
	}
	Children struct {
		Pods map[string]struct {
			Metadata struct{ UID string }
			Status   struct{ PodIP string }
		} `json:"Pod.v1"`
		Probes map[string]struct {
			Status struct{ Verdict string }
		} `json:"ProxyProbe.crawl.example.com/v1alpha1"`
	}
}

// ServeHTTP implements http.Handler.
func (h *trivial) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if path.Base(r.URL.Path) == metacontroller.HookCustomize {
		_, _ = w.Write([]byte(`{"relatedResources":[]}`))
		return
	}
	var request trivialRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var out bytes.Buffer
	phase, children := h.decide(&request)
	fmt.Fprintf(&out, `{"status":{"phase":%q},"children":[%s],"resyncAfterSeconds":0,"finalized":false}`, phase, children)
	_, _ = w.Write(out.Bytes())
}

func (h *trivial) decide(r *trivialRequest) (phase, children string) {
	names := []string{
		sampleName, r.Parent.Metadata.Name, sampleUID, r.Parent.Metadata.UID,
		v1alpha1.InstanceName(sampleUID), v1alpha1.InstanceName(types.UID(r.Parent.Metadata.UID)),
	}
	phase, children = "Provisioning", h.pod
	for _, pod := range r.Children.Pods {
		if pod.Status.PodIP != "" {
			names = append(names, samplePod, pod.Metadata.UID, sampleIP, pod.Status.PodIP)
			phase, children = "Probing", h.pod+","+h.probe
		}
	}
	for _, probe := range r.Children.Probes {
		if probe.Status.Verdict == string(v1alpha1.VerdictHealthy) {
			phase = "Ready"
		}
	}
	return phase, strings.NewReplacer(names...).Replace(children)
}
