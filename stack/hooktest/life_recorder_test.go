package hooktest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// recorder is a reverse proxy in front of hooks that records their requests.
//
// A request with stale children, because a cache lagged behind the API server, is
// forwarded and not recorded: another one follows, and the number of stale requests
// is random with both drivers.
type recorder struct {
	t     *testing.T
	lab   *Lab
	hooks *httputil.ReverseProxy

	mu   sync.Mutex
	step string
	kept []request
}

// request is one that was kept.
type request struct {
	step, hook string
	body       []byte
	// versions of all objects that it shows.
	versions string
}

func newRecorder(t *testing.T, lab *Lab, hooks string) *recorder {
	t.Helper()
	target, err := url.Parse(hooks)
	require.NoError(t, err)
	return &recorder{t: t, lab: lab, hooks: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}}
}

// ServeHTTP implements http.Handler.
func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	got := request{hook: path.Base(req.URL.Path), body: body}
	shown, err := shownBy(body)
	if err != nil {
		r.t.Errorf("%s: %v", got.hook, err)
	}
	got.versions = shown.String()
	if shown.sameButParent(r.live(req.Context(), shown, got.hook)) {
		r.mu.Lock()
		got.step = r.step
		r.kept = append(r.kept, got)
		r.mu.Unlock()
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	r.hooks.ServeHTTP(w, req)
}

// begin sets the name of the next step.
func (r *recorder) begin(step string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.step = step
}

func (r *recorder) requests() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.kept)
}

// atRest reports whether the last two requests contain the current Proxy of that
// name, so that the response between them changed nothing, or whether there is no
// such Proxy.
func (r *recorder) atRest(proxy string) bool {
	if r.lab.Proxy(proxy) == nil {
		return true
	}
	var last []request
	for _, got := range slices.Backward(r.requests()) {
		if got.hook != metacontroller.HookCustomize {
			last = append(last, got)
		}
	}
	if len(last) < 2 || last[0].versions != last[1].versions {
		return false
	}
	shown, err := shownBy(last[0].body)
	require.NoError(r.t, err)
	return last[0].versions == r.live(r.t.Context(), shown, last[0].hook).String()
}

// versions are the identities and resource versions of objects, by resource and
// name.
type versions map[string]string

func (v versions) add(gvr schema.GroupVersionResource, obj metav1.Object) {
	v[gvr.Resource+"/"+obj.GetName()] = string(obj.GetUID()) + " " + obj.GetResourceVersion()
}

func (v versions) String() string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(v)) {
		lines = append(lines, key+" "+v[key])
	}
	return strings.Join(lines, "\n")
}

// sameButParent reports whether all objects but the parent, which every request
// has, are the same ones in the same version. The parent changes with each
// answer.
func (v versions) sameButParent(other versions) bool {
	parent := v1alpha1.ProxyResource().Resource + "/"
	for _, pair := range [][2]versions{{v, other}, {other, v}} {
		for key, version := range pair[0] {
			if !strings.HasPrefix(key, parent) && pair[1][key] != version {
				return false
			}
		}
	}
	return true
}

// shownBy are the objects in a request.
func shownBy(body []byte) (versions, error) {
	var req metacontroller.Request
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	shown := versions{}
	objects := map[string]schema.GroupVersionResource{
		"Pod.v1": PodResource(), "Secret.v1": SecretResource(),
		"ProxyProbe.crawl.example.com/v1alpha1": v1alpha1.ProxyProbeResource(),
	}
	add := func(gvr schema.GroupVersionResource, raw json.RawMessage) error {
		var obj unstructured.Unstructured
		if err := json.Unmarshal(raw, &obj.Object); err != nil {
			return err
		}
		shown.add(gvr, &obj)
		return nil
	}
	if err := add(v1alpha1.ProxyResource(), req.Parent); err != nil {
		return nil, err
	}
	for kind, gvr := range objects {
		for _, group := range []metacontroller.Objects{req.Children, req.Related} {
			for _, raw := range group[kind] {
				if err := add(gvr, raw); err != nil {
					return nil, err
				}
			}
		}
	}
	return shown, nil
}

// live are the current versions of the objects in a request: the Proxy, its children
// and the related Secrets.
func (r *recorder) live(ctx context.Context, shown versions, hook string) versions {
	live := versions{}
	for key := range shown {
		resource, name, _ := strings.Cut(key, "/")
		gvr := v1alpha1.ProxyResource()
		switch resource {
		case SecretResource().Resource:
			gvr = SecretResource()
		case gvr.Resource:
		default:
			continue
		}
		obj, err := r.lab.In(gvr).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || ctx.Err() != nil {
			continue
		}
		if err != nil {
			r.t.Errorf("read %s: %v", key, err)
			continue
		}
		live.add(gvr, obj)
		if gvr == v1alpha1.ProxyResource() && hook != metacontroller.HookCustomize {
			r.addChildren(ctx, live, obj)
		}
	}
	return live
}

func (r *recorder) addChildren(ctx context.Context, live versions, parent metav1.Object) {
	for _, gvr := range []schema.GroupVersionResource{PodResource(), v1alpha1.ProxyProbeResource()} {
		list, err := r.lab.In(gvr).List(ctx, metav1.ListOptions{})
		if err != nil {
			if ctx.Err() == nil {
				r.t.Errorf("list %s: %v", gvr.Resource, err)
			}
			return
		}
		for _, obj := range list.Items {
			if metav1.IsControlledBy(&obj, parent) {
				live.add(gvr, &obj)
			}
		}
	}
}
