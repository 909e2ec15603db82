package standin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"
	kjson "sigs.k8s.io/json"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

const (
	group    = "crawl.example.com"
	parentID = types.UID("45343a22-4f0a-4e12-8020-6c3103836145")
)

var start = time.Date(2026, 11, 29, 19, 0, 0, 0, time.UTC)

// fakeDiscovery serves a fixed set of resources.
type fakeDiscovery map[string][]metav1.APIResource

func (d fakeDiscovery) ServerResourcesForGroupVersion(gv string) (*metav1.APIResourceList, error) {
	list, ok := d[gv]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, gv)
	}
	return &metav1.APIResourceList{GroupVersion: gv, APIResources: list}, nil
}

func discovered() fakeDiscovery {
	return fakeDiscovery{
		"v1": {
			{Name: "pods/status", Kind: "Pod", Namespaced: true},
			{Name: "pods", Kind: "Pod", Namespaced: true},
			{Name: "secrets", Kind: "Secret", Namespaced: true},
			{Name: "configmaps", Kind: "ConfigMap", Namespaced: true},
			{Name: "nodes", Kind: "Node"},
		},
		group + "/v1alpha1": {
			{Name: "proxies", Kind: "Proxy", Namespaced: true},
			{Name: "proxies/status", Kind: "Proxy", Namespaced: true},
			{Name: "proxyprobes", Kind: "ProxyProbe", Namespaced: true},
		},
	}
}

// harness is a controller on a fake API server; the test calls its reconciles.
type harness struct {
	*controller
	t      *testing.T
	hook   *toyHook
	api    *fake.FakeDynamicClient
	clock  *testclock.FakeClock
	events *record.FakeRecorder
	ctx    context.Context
}

func newHarness(t *testing.T, objects ...*object) *harness {
	t.Helper()
	hook := newToyHook(t)
	h := &harness{t: t, hook: hook, clock: testclock.NewFakeClock(start), events: record.NewFakeRecorder(100)}
	h.api = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		{Version: "v1", Resource: "pods"}:                            "PodList",
		{Version: "v1", Resource: "secrets"}:                         "SecretList",
		{Version: "v1", Resource: "configmaps"}:                      "ConfigMapList",
		{Version: "v1", Resource: "nodes"}:                           "NodeList",
		{Group: group, Version: "v1alpha1", Resource: "proxies"}:     "ProxyList",
		{Group: group, Version: "v1alpha1", Resource: "proxyprobes"}: "ProxyProbeList",
	}, asRuntime(objects)...)
	spec := manifestFor(t, hook.URL)
	manifest, err := json.Marshal(spec)
	require.NoError(t, err)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	h.controller, err = newController(deps{
		Config:   Config{Controller: spec, Clock: h.clock, Log: slog.New(slog.DiscardHandler), Workers: 2},
		manifest: manifest, client: h.api, discovery: discovered(), transport: transport, events: h.events,
		metrics: newMetrics(prometheus.NewRegistry()),
	})
	require.NoError(t, err)
	h.startInformers()
	return h
}

// startInformers syncs the caches as run does, without workers.
func (h *harness) startInformers() {
	ctx, cancel := context.WithCancel(h.t.Context())
	h.ctx = ctx
	h.queue = newQueue(h.clock)
	synced := h.watchAll(ctx)
	h.t.Cleanup(func() {
		cancel()
		h.queue.ShutDown()
		h.informers.Wait()
	})
	require.True(h.t, cache.WaitForCacheSync(ctx.Done(), synced...))
}

func asRuntime(objects []*object) []runtime.Object {
	out := make([]runtime.Object, 0, len(objects))
	for _, obj := range objects {
		out = append(out, obj)
	}
	return out
}

// sync syncs the Proxy crawl/fra-1 as a worker would.
func (h *harness) sync() error {
	h.t.Helper()
	err := h.controller.sync(h.ctx, "crawl/fra-1")
	h.requeue(h.ctx, "crawl/fra-1", err)
	return err
}

// writes are the write requests to the API server, in order, such as
// "create pods crawl/a" or "update proxies/status crawl/fra-1".
func (h *harness) writes() []string {
	out := []string{}
	for _, action := range h.api.Actions() {
		name := ""
		switch a := action.(type) {
		case clienttesting.CreateAction: // an UpdateAction is one as well
			obj := a.GetObject().(*object)
			name = keyOf(obj)
		case clienttesting.DeleteAction:
			name = metacontroller.Key(action.GetNamespace(), a.GetName())
		default:
			continue
		}
		resource := action.GetResource().Resource
		if action.GetSubresource() != "" {
			resource += "/" + action.GetSubresource()
		}
		out = append(out, fmt.Sprintf("%s %s %s", action.GetVerb(), resource, name))
	}
	return out
}

// live returns an object as the API server has it, nil when it has none.
func (h *harness) live(resource, name string) *object {
	h.t.Helper()
	gvr := schema.GroupVersionResource{Version: "v1", Resource: resource}
	if resource == "proxies" || resource == "proxyprobes" {
		gvr = schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: resource}
	}
	obj, err := h.api.Resource(gvr).Namespace("crawl").Get(h.ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(h.t, err)
	return obj
}

// failOn makes one verb on one resource fail.
func (h *harness) failOn(verb, resource string, err error) {
	h.api.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

// parse makes an object from JSON.
func parse(t testing.TB, text string) *object {
	t.Helper()
	var content map[string]any
	require.NoError(t, kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &content), text)
	return &object{Object: content}
}

// proxy is the Proxy crawl/fra-1, after the changes that edit makes.
func proxy(edit ...func(*object)) *object {
	obj := &object{Object: map[string]any{
		"apiVersion": group + "/v1alpha1",
		"kind":       "Proxy",
		"metadata": map[string]any{
			"name": "fra-1", "namespace": "crawl", "uid": string(parentID), "generation": int64(1), "resourceVersion": "10",
			"finalizers": []any{metacontroller.Finalizer},
		},
		"spec": map[string]any{"mode": "Managed", "provider": "pods"},
	}}
	for _, e := range edit {
		e(obj)
	}
	return obj
}

func deleting(obj *object) {
	at := metav1.NewTime(start)
	obj.SetDeletionTimestamp(&at)
}

func withoutFinalizer(obj *object) { obj.SetFinalizers(nil) }

// pod is a Pod that the Proxy owns.
func pod(name string, edit ...func(*object)) *object {
	obj := &object{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Pod",
		"metadata": map[string]any{
			"name": name, "namespace": "crawl", "uid": "uid-of-" + name, "resourceVersion": "11",
			"labels": map[string]any{selectorLabel: string(parentID)},
		},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "squid", "image": "squid:1"}}},
	}}
	own(proxy(), obj)
	for _, e := range edit {
		e(obj)
	}
	return obj
}

// reply is the response of a toy hook; a zero code is 200.
type reply struct {
	code   int
	header map[string]string
	body   string
}

// call is one request to a toy hook.
type call struct {
	hook string
	at   time.Time
	body []byte
	metacontroller.Request
}

// toyHook is a hook server whose responses the test sets.
type toyHook struct {
	*httptest.Server

	mu      sync.Mutex
	calls   []call
	answers map[string]func(call) reply
}

// newToyHook returns a hook server with default responses: customize without rules,
// sync without children, finalize with finalized.
func newToyHook(t testing.TB) *toyHook {
	h := &toyHook{answers: map[string]func(call) reply{
		metacontroller.HookCustomize: func(call) reply { return reply{body: `{"relatedResources":[]}`} },
		metacontroller.HookSync:      func(call) reply { return reply{body: `{"status":{},"children":[]}`} },
		metacontroller.HookFinalize:  func(call) reply { return reply{body: `{"status":{},"children":[],"finalized":true}`} },
	}}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(h.Close)
	return h
}

func (h *toyHook) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	got := call{hook: strings.TrimPrefix(r.URL.Path, "/"), at: time.Now(), body: body}
	if err != nil || json.Unmarshal(body, &got.Request) != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
		http.Error(w, "not a hook call", http.StatusTeapot)
		return
	}
	h.mu.Lock()
	h.calls = append(h.calls, got)
	answer := h.answers[got.hook]
	h.mu.Unlock()
	rep := answer(got)
	for name, value := range rep.header {
		w.Header().Set(name, value)
	}
	if rep.code != 0 {
		w.WriteHeader(rep.code)
	}
	_, _ = io.WriteString(w, rep.body)
}

// on sets the response of one hook.
func (h *toyHook) on(hook string, answer func(call) reply) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers[hook] = answer
}

// say: a fixed response of one hook.
func (h *toyHook) say(hook, body string) {
	h.on(hook, func(call) reply { return reply{body: body} })
}

// got returns the calls of one hook so far.
func (h *toyHook) got(hook string) []call {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []call
	for _, c := range h.calls {
		if c.hook == hook {
			out = append(out, c)
		}
	}
	return out
}

func (h *toyHook) last(t testing.TB, hook string) call {
	t.Helper()
	calls := h.got(hook)
	require.NotEmpty(t, calls, "no call of %s", hook)
	return calls[len(calls)-1]
}

// order returns the names of the hooks in the order of their calls.
func (h *toyHook) order() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := []string{}
	for _, c := range h.calls {
		out = append(out, c.hook)
	}
	return out
}

// childKeys are the keys of the observed children of one kind.
func (c call) childKeys(kind string) []string {
	out := []string{}
	for key := range maps.Keys(c.Children[kind]) {
		out = append(out, key)
	}
	return out
}

// manifestFor is our own manifest with the hooks at base.
func manifestFor(t testing.TB, base string) *metacontroller.Controller {
	t.Helper()
	spec, err := metacontroller.LoadController("../compositecontroller.yaml")
	require.NoError(t, err)
	require.NoError(t, spec.SetHookBaseURL(base))
	return spec
}
