package witness

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
)

// fakeAPI is an API server that can be away, and forget what was.
type fakeAPI struct {
	mu      sync.Mutex
	away    bool
	missed  int // requests for Proxies while it was away
	expired bool
	items   string        // of lists
	version int           // of lists
	events  chan string   // of the watch
	broken  chan struct{} // closed to break watches off
}

func (a *fakeAPI) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	if a.away && strings.Contains(r.URL.Path, "proxies") {
		a.missed++
	}
	away, expired, items, version, broken := a.away, a.expired, a.items, a.version, a.broken
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case away:
		panic(http.ErrAbortHandler)
	case !strings.Contains(r.URL.Path, "proxies"):
		<-r.Context().Done() // the test is about Proxies
	case r.URL.Query().Get("watch") == "":
		fmt.Fprintf(w, `{"apiVersion":"crawl.example.com/v1alpha1","kind":"ProxyList","metadata":{"resourceVersion":"%d"},"items":[%s]}`, version, items)
	case expired && r.URL.Query().Get("resourceVersion") != fmt.Sprint(version):
		w.WriteHeader(http.StatusGone)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
	default:
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case e := <-a.events:
				fmt.Fprintln(w, e)
				_ = http.NewResponseController(w).Flush()
			case <-broken:
				panic(http.ErrAbortHandler)
			case <-r.Context().Done():
				return
			}
		}
	}
}

func (a *fakeAPI) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

func proxyJSON(name, uid string, version int) string {
	return fmt.Sprintf(`{"apiVersion":"crawl.example.com/v1alpha1","kind":"Proxy","metadata":{"namespace":"default","name":%q,"uid":%q,"resourceVersion":"%d"},"spec":{"mode":"External","endpoint":{"host":"127.0.0.9","port":3128}}}`, name, uid, version)
}

func changes(h *history.History) []string {
	var out []string
	for _, o := range h.Objects {
		out = append(out, fmt.Sprintf("%s %s %s", o.Change, o.Name, o.UID))
	}
	return out
}

// TestOutages: changes during an outage of the API server are recorded when it is
// back, and that nothing was seen until then, too.
func TestOutages(t *testing.T) {
	api := &fakeAPI{items: proxyJSON("a", "1", 5), version: 5, events: make(chan string), broken: make(chan struct{})}
	s := newScene(t)
	s.cfg.Kube = &rest.Config{Host: serve(t, api.serve)}
	s.run()
	api.events <- `{"type":"ADDED","object":` + proxyJSON("b", "2", 6) + `}`
	api.events <- `{"type":"MODIFIED","object":` + proxyJSON("b", "2", 7) + `}`
	api.events <- `{"type":"BOOKMARK","object":` + proxyJSON("", "", 8) + `}`
	s.until(func(h *history.History) bool { return len(h.Objects) == 3 })

	api.set(func() {
		api.away, api.expired, api.version = true, true, 20
		api.items = proxyJSON("b", "3", 19) + "," + proxyJSON("c", "4", 18)
		close(api.broken)
	})
	s.await(func() bool {
		api.mu.Lock()
		defer api.mu.Unlock()
		return api.missed > 2
	})
	api.set(func() { api.away, api.broken = false, make(chan struct{}) })
	h := s.until(func(h *history.History) bool { return len(h.Objects) == 7 })
	got := changes(h)
	slices.Sort(got[3:])
	assert.Equal(t, []string{
		"added default/a 1", "added default/b 2", "modified default/b 2",
		"added default/b 3", "added default/c 4", "vanished default/a 1", "vanished default/b 2",
	}, got)
	s.until(func(h *history.History) bool {
		return slices.ContainsFunc(h.Gaps, func(g history.Gap) bool { return g.Observer == "proxies" && g.To-g.From >= retryPause })
	})
	api.events <- `{"type":"DELETED","object":` + proxyJSON("c", "4", 21) + `}`
	h = s.until(func(h *history.History) bool { return len(h.Objects) == 8 })
	assert.Equal(t, "deleted default/c 4", changes(h)[7])
}

// TestRealObjects are seen with all that the judge needs.
func TestRealObjects(t *testing.T) {
	cp := shared.Get(t)
	require.NoError(t, controlplane.InstallCRDs(t.Context(), cp.RESTConfig(), crd.Manifests()...))
	s := newScene(t)
	s.cfg.Kube = cp.RESTConfig()
	s.run()
	client := dynamic.NewForConfigOrDie(cp.RESTConfig())

	proxy := &v1alpha1.Proxy{Spec: v1alpha1.ProxySpec{
		Mode: v1alpha1.ModeManaged, Provider: "cloud", Port: 4128, Placement: &v1alpha1.Placement{Zone: "z-1"},
		CloudInit: &v1alpha1.CloudInit{Inline: "#cloud-config"},
	}}
	proxy.APIVersion, proxy.Kind, proxy.Name, proxy.Finalizers = v1alpha1.GroupVersion().String(), "Proxy", "vm", []string{"example.com/keep"}
	made := create(t, client.Resource(v1alpha1.ProxyResource()).Namespace("default"), proxy)
	made.Object["status"] = map[string]any{
		"phase": "Ready", "ip": "127.0.0.9", "port": int64(4128), "instanceID": "77", "specHash": "v1-x", "observedGeneration": int64(1),
		"conditions": []any{map[string]any{"type": "Healthy", "status": "True", "reason": "ProbeSucceeded", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}},
	}
	_, err := client.Resource(v1alpha1.ProxyResource()).Namespace("default").UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
	require.NoError(t, err)
	pod := &corev1.Pod{}
	pod.APIVersion, pod.Kind, pod.Name = "v1", "Pod", "proxy-x"
	pod.Labels, pod.Annotations = map[string]string{v1alpha1.LabelUID: "uid-1"}, map[string]string{v1alpha1.AnnotationSpecHash: "v1-y"}
	pod.Spec.Containers = []corev1.Container{{Name: "squid", Image: "squid"}}
	create(t, client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace("default"), pod)

	find := func(h *history.History, kind, phase string) *history.Object {
		i := slices.IndexFunc(h.Objects, func(o history.Object) bool { return o.Kind == kind && o.Phase == phase })
		if i < 0 {
			return nil
		}
		return &h.Objects[i]
	}
	h := s.until(func(h *history.History) bool {
		return find(h, "Proxy", "Ready") != nil && find(h, "Pod", "Pending") != nil
	})
	got := find(h, "Proxy", "Ready")
	assert.Equal(t, history.Wanted{
		Mode: "Managed", Provider: "cloud", Port: 4128, Zone: "z-1", MaxLeases: 5, SpecHash: v1alpha1.SpecHash(proxy.Spec.Placement, "#cloud-config", 4128),
		Interval: 30 * time.Second, Timeout: 5 * time.Second, FailureThreshold: 3, SuccessThreshold: 1,
	}, *got.Wanted)
	assert.Equal(t, []string{"example.com/keep"}, got.Finalizers)
	assert.Equal(t, "127.0.0.9:4128", got.Endpoint)
	assert.Equal(t, []history.Condition{{Type: "Healthy", Status: "True", Reason: "ProbeSucceeded"}}, got.Conditions)
	assert.Equal(t, string(made.GetUID()), got.UID)
	got = find(h, "Pod", "Pending")
	assert.Equal(t, []string{"uid-1", "v1-y"}, []string{got.OwnerUID, got.SpecHash})
}

func create(t *testing.T, client dynamic.ResourceInterface, object any) *unstructured.Unstructured {
	t.Helper()
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	made, err := client.Create(context.Background(), &unstructured.Unstructured{Object: raw}, metav1.CreateOptions{})
	require.NoError(t, err)
	return made
}
