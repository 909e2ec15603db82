package standin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream/upstreamtest"
)

// shared is the API server of all end-to-end tests here.
var shared controlplanetest.Shared

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Main(m)) }

const (
	namespace = "default"
	// patience is the timeout of every wait, with a reserve for busy machines.
	patience = 30 * time.Second
	poll     = 10 * time.Millisecond
)

var (
	proxies = schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "proxies"}
	probes  = schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "proxyprobes"}
	secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	pods    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	events  = schema.GroupVersionResource{Version: "v1", Resource: "events"}
)

// cluster is the real API server with our CRDs, a toy hook and clean-up.
type cluster struct {
	t    *testing.T
	cp   *controlplane.ControlPlane
	api  dynamic.Interface
	hook *toyHook
	// timeout of the sync hook, when it is not the manifest's.
	timeout time.Duration
	log     logBuffer
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	cp := shared.Get(t)
	var crds [][]byte
	for _, name := range []string{"proxies", "proxyprobes"} {
		b, err := os.ReadFile("../../manifests/crd/crawl.example.com_" + name + ".yaml")
		require.NoError(t, err)
		crds = append(crds, b)
	}
	require.NoError(t, controlplane.InstallCRDs(t.Context(), cp.RESTConfig(), crds...))
	api, err := dynamic.NewForConfig(cp.RESTConfig())
	require.NoError(t, err)
	c := &cluster{t: t, cp: cp, api: api, hook: newToyHook(t)}
	t.Cleanup(c.wipe)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.log.String())
		}
	})
	return c
}

// wipe removes all objects of a test, even those with finalizers.
func (c *cluster) wipe() {
	ctx := context.Background()
	now := int64(0)
	for _, gvr := range []schema.GroupVersionResource{proxies, probes, pods, secrets} {
		list, err := c.in(gvr).List(ctx, metav1.ListOptions{})
		require.NoError(c.t, err)
		for _, obj := range list.Items {
			_, err := c.in(gvr).Patch(ctx, obj.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			require.NoError(c.t, ignoreNotFound(err))
			require.NoError(c.t, ignoreNotFound(c.in(gvr).Delete(ctx, obj.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now})))
		}
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (c *cluster) in(gvr schema.GroupVersionResource) dynamic.ResourceInterface {
	return c.api.Resource(gvr).Namespace(namespace)
}

// run starts a stand-in and returns a function that stops it and checks for errors.
func (c *cluster) run(workers int) (stop func()) {
	c.t.Helper()
	if real() {
		return c.runReal(workers)
	}
	e, err := New(Config{
		Controller: c.manifest(),
		REST:       c.cp.RESTConfig(),
		Workers:    workers,
		Log:        slog.New(slog.NewTextHandler(&c.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	require.NoError(c.t, err)
	require.ErrorContains(c.t, e.Ready(), "not started")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			require.NoError(c.t, err)
		case <-time.After(patience):
			require.Fail(c.t, "the stand-in does not stop")
		}
		require.ErrorContains(c.t, e.Ready(), "stopped")
	}
	c.t.Cleanup(stop)
	require.Eventually(c.t, func() bool { return e.Ready() == nil }, patience, poll)
	return stop
}

// logBuffer keeps a log that is written while it is read.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// createProxy creates an External Proxy, which has the shortest spec.
func (c *cluster) createProxy(name string) *object {
	c.t.Helper()
	return c.create(proxies, `{"apiVersion":"crawl.example.com/v1alpha1","kind":"Proxy","metadata":{"name":"`+name+`"},"spec":{"mode":"External","endpoint":{"host":"203.0.113.7","port":3128}}}`)
}

func (c *cluster) create(gvr schema.GroupVersionResource, text string) *object {
	c.t.Helper()
	created, err := c.in(gvr).Create(c.t.Context(), parse(c.t, text), metav1.CreateOptions{})
	require.NoError(c.t, err)
	return created
}

func (c *cluster) get(gvr schema.GroupVersionResource, name string) *object {
	c.t.Helper()
	obj, err := c.in(gvr).Get(c.t.Context(), name, metav1.GetOptions{})
	require.NoError(c.t, ignoreNotFound(err))
	if err != nil {
		return nil
	}
	return obj
}

func (c *cluster) patch(gvr schema.GroupVersionResource, name, patch string, subresources ...string) {
	c.t.Helper()
	_, err := c.in(gvr).Patch(c.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	require.NoError(c.t, err)
}

func (c *cluster) annotate(name string) {
	c.t.Helper()
	c.patch(proxies, name, fmt.Sprintf(`{"metadata":{"annotations":{"wake":"%d"}}}`, time.Now().UnixNano()))
}

func (c *cluster) delete(gvr schema.GroupVersionResource, name string) {
	c.t.Helper()
	require.NoError(c.t, c.in(gvr).Delete(c.t.Context(), name, metav1.DeleteOptions{}))
}

// eventually waits for a condition.
func (c *cluster) eventually(what string, condition func() bool) {
	c.t.Helper()
	require.Eventually(c.t, condition, patience, poll, what)
}

// syncsOf are the sync calls about one Proxy.
func (c *cluster) syncsOf(name string) []call {
	return about(c.hook.got("sync"), name)
}

func about(calls []call, name string) []call {
	var out []call
	for _, call := range calls {
		var parent struct {
			Metadata struct{ Name string }
		}
		if json.Unmarshal(call.Parent, &parent) == nil && parent.Metadata.Name == name {
			out = append(out, call)
		}
	}
	return out
}

// podOf is a desired Pod of the Proxy of that name.
func podOf(name string) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `"},"spec":{"containers":[{"name":"squid","image":"registry.example.com/squid:1"}],"automountServiceAccountToken":false}}`
}

func probeOf(name, instance string) string {
	return `{"apiVersion":"crawl.example.com/v1alpha1","kind":"ProxyProbe","metadata":{"name":"` + name + `"},"spec":{"instanceID":"` + instance + `","host":"203.0.113.7","port":3128}}`
}

// answer is a sync response with a phase and children.
func answer(phase string, resync float64, children ...string) reply {
	list := ""
	for i, child := range children {
		if i > 0 {
			list += ","
		}
		list += child
	}
	return reply{body: fmt.Sprintf(`{"status":{"phase":%q},"children":[%s],"resyncAfterSeconds":%g}`, phase, list, resync)}
}

// real reports whether the end-to-end tests run against the real Metacontroller. A
// test that passes with only one of them shows a bug of the stand-in.
func real() bool { return os.Getenv(upstream.ProgramEnv) != "" }

// runReal starts it with our manifest.
func (c *cluster) runReal(workers int) (stop func()) {
	c.t.Helper()
	return upstreamtest.Run(c.t, c.cp, c.manifest(), upstream.Options{Workers: workers})
}
