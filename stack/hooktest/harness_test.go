// Package hooktest has tests of the hooks in a lab: a real API server, driven by the stand-in or by
// the real Metacontroller, with a fake kubelet and a fake prober, so that the test controls the
// order of events. The hooks are idempotent, unaffected by upgrades, within the replacement budget,
// and no slower than hooks without decisions; and the stand-in calls them as the real
// Metacontroller does.
package hooktest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
)

// shared is the API server of all tests here.
var shared controlplanetest.Shared

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Main(m)) }

const provider = "pods"

// release is a release of webhooks, with its settings.
type release struct {
	providers string
	secrets   bool
	timing    proxy.Timing
	events    webhooks.Recorder
}

const providers = `
providers:
- name: ` + provider + `
  type: kubernetes
  kubernetes: {image: "squid:1", allowClients: [10.0.0.0/8]}
`

// quick are short poll intervals; shorter ones would keep a loaded machine busy.
func quick(drift time.Duration) proxy.Timing {
	return proxy.Timing{ProvisioningDeadline: time.Hour, ProvisioningPoll: time.Second, DriftPoll: drift, RemovalPoll: time.Second, BudgetPoll: time.Second}
}

// hooks returns the hooks of a release.
func (r release) hooks(t testing.TB) *webhooks.Hooks {
	t.Helper()
	limit, err := webhooks.ParseLimit("20%")
	require.NoError(t, err)
	loaded, err := config.ParseProviders([]byte(r.providers))
	require.NoError(t, err)
	return webhooks.New(webhooks.Options{
		Providers: loaded, CloudInitSecrets: r.secrets, MaxReplacing: limit, Timing: r.timing, Events: r.events,
		Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
}

// Drivers are the stand-in and, when METACONTROLLER names its binary, the real
// Metacontroller under each of its strategies.
func Drivers(t testing.TB) []Driver {
	t.Helper()
	drivers := []Driver{{}}
	if os.Getenv(upstream.ProgramEnv) != "" {
		drivers = append(drivers, RealDrivers(t)...)
	}
	return drivers
}

// AwaitReady returns a channel that is closed once n Proxies have been Ready. It watches, which is
// cheaper than polling.
func (l *Lab) AwaitReady(n int) <-chan struct{} {
	l.t.Helper()
	var mu sync.Mutex
	seen := map[string]bool{}
	all := make(chan struct{})
	l.play(v1alpha1.ProxyResource(), func(_ context.Context, obj *unstructured.Unstructured) error {
		phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
		mu.Lock()
		defer mu.Unlock()
		if phase != string(v1alpha1.PhaseReady) || seen[obj.GetName()] {
			return nil
		}
		if seen[obj.GetName()] = true; len(seen) == n {
			close(all)
		}
		return nil
	})
	return all
}

// Versions are the resource versions of all objects of the fleet, by resource and name. A write
// changes them.
func (l *Lab) Versions() map[string]string {
	l.t.Helper()
	out := map[string]string{}
	for _, gvr := range Resources() {
		list, err := l.In(gvr).List(l.t.Context(), metav1.ListOptions{})
		if err != nil {
			l.t.Fatalf("list %s: %v", gvr.Resource, err)
		}
		for _, obj := range list.Items {
			out[gvr.Resource+"/"+obj.GetName()] = fmt.Sprintf("%s %s", obj.GetUID(), obj.GetResourceVersion())
		}
	}
	return out
}

// Call is one call of a hook.
type Call struct {
	// Hook is customize, sync or finalize, and Proxy the parent's name.
	Hook, Proxy string
	// Began is the start of the request.
	Began time.Time
}

// Tally counts the calls of hooks.
type Tally struct {
	hooks http.Handler

	mu    sync.Mutex
	calls []Call
}

// NewTally counts the calls of hooks.
func NewTally(hooks http.Handler) *Tally { return &Tally{hooks: hooks} }

// ServeHTTP implements http.Handler.
func (t *Tally) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	t.hooks.ServeHTTP(w, r)
	call := Call{Hook: path.Base(r.URL.Path), Proxy: parentName(body), Began: began}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, call)
}

// Calls are all calls so far.
func (t *Tally) Calls() []Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Call(nil), t.calls...)
}

// Of are the calls of one hook so far, by Proxy.
func (t *Tally) Of(hook string) map[string][]Call {
	out := map[string][]Call{}
	for _, c := range t.Calls() {
		if c.Hook == hook {
			out[c.Proxy] = append(out[c.Proxy], c)
		}
	}
	return out
}

func parentName(body []byte) string {
	var request struct {
		Parent struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		} `json:"parent"`
	}
	if json.Unmarshal(body, &request) != nil {
		return ""
	}
	return request.Parent.Metadata.Name
}

// sample is one line of the API server's metrics.
type sample struct {
	labels map[string]string
	value  float64
}

var (
	samplePattern = regexp.MustCompile(`(?m)^(\w+)\{(.*)\} (\S+)$`)
	labelPattern  = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// metric reads all samples of one metric of the API server.
func (l *Lab) metric(name string) []sample {
	l.t.Helper()
	body, err := l.core.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(l.t.Context())
	if err != nil {
		l.t.Fatalf("read the API server's metrics: %v", err)
	}
	var out []sample
	for _, m := range samplePattern.FindAllStringSubmatch(string(body), -1) {
		if m[1] != name {
			continue
		}
		s := sample{labels: map[string]string{}}
		for _, pair := range labelPattern.FindAllStringSubmatch(m[2], -1) {
			s.labels[pair[1]] = pair[2]
		}
		if s.value, err = strconv.ParseFloat(m[3], 64); err != nil {
			l.t.Fatalf("metric %s: %v", name, err)
		}
		out = append(out, s)
	}
	return out
}

// Writes counts the write requests to the API server, by verb and resource, except its own: Leases
// and its configuration. A request that changes nothing counts too.
func (l *Lab) Writes() map[string]int {
	l.t.Helper()
	out := map[string]int{}
	for _, s := range l.metric("apiserver_request_total") {
		if slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}, s.labels["verb"]) && s.labels["resource"] != "leases" {
			out[s.labels["verb"]+" "+s.labels["resource"]+"/"+s.labels["subresource"]] += int(s.value)
		}
	}
	return out
}

// SecretWatches counts the open watches of the Secrets of all namespaces, including one of the API
// server itself.
func (l *Lab) SecretWatches() int {
	l.t.Helper()
	n := 0
	for _, s := range l.metric("apiserver_longrunning_requests") {
		if s.labels["verb"] == "WATCH" && s.labels["resource"] == "secrets" && s.labels["scope"] == "cluster" {
			n += int(s.value)
		}
	}
	return n
}

// Switch serves hooks that can be replaced while they are called, as in a rollout of webhooks.
type Switch struct {
	current atomic.Pointer[http.Handler]
}

// NewSwitch starts with hooks.
func NewSwitch(hooks http.Handler) *Switch {
	s := &Switch{}
	s.To(hooks)
	return s
}

// To replaces the hooks.
func (s *Switch) To(hooks http.Handler) { s.current.Store(&hooks) }

// ServeHTTP implements http.Handler.
func (s *Switch) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*s.current.Load()).ServeHTTP(w, r)
}
