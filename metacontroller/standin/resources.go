package standin

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// discoverer is the part of a discovery client that resources use.
type discoverer interface {
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// resource is one kind of API object and its client.
type resource struct {
	gvk        schema.GroupVersionKind
	gvr        schema.GroupVersionResource
	namespaced bool
	client     dynamic.NamespaceableResourceInterface
}

// in returns the client for a namespace, which is ignored for cluster-scoped
// resources.
func (r *resource) in(namespace string) dynamic.ResourceInterface {
	if !r.namespaced || namespace == "" {
		return r.client
	}
	return r.client.Namespace(namespace)
}

// resources finds resources by discovery and caches them. It retries the discovery
// of a resource that is not cached: its CRD may be installed later.
type resources struct {
	discovery discoverer
	client    dynamic.Interface

	mu    sync.Mutex
	known map[string][]metav1.APIResource
}

func newResources(d discoverer, c dynamic.Interface) *resources {
	return &resources{discovery: d, client: c, known: map[string][]metav1.APIResource{}}
}

// byRef finds a resource by apiVersion and plural name.
func (r *resources) byRef(ref metacontroller.ResourceRef) (*resource, error) {
	return r.find("resource "+ref.Resource, ref.APIVersion, func(res metav1.APIResource) bool { return res.Name == ref.Resource })
}

// byKind finds the resource of a kind.
func (r *resources) byKind(gvk schema.GroupVersionKind) (*resource, error) {
	return r.find("kind "+gvk.Kind, gvk.GroupVersion().String(), func(res metav1.APIResource) bool {
		// pods/status and its like have kinds too.
		return res.Kind == gvk.Kind && !strings.Contains(res.Name, "/")
	})
}

func (r *resources) find(what, apiVersion string, match func(metav1.APIResource) bool) (*resource, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", what, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	found := slices.IndexFunc(r.known[apiVersion], match)
	if found < 0 {
		list, err := r.discovery.ServerResourcesForGroupVersion(apiVersion)
		switch {
		case err == nil:
			r.known[apiVersion] = list.APIResources
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("find %s in %s: discover the resources of the API server: %w", what, apiVersion, err)
		}
		if found = slices.IndexFunc(r.known[apiVersion], match); found < 0 {
			return nil, fmt.Errorf("find %s in %s: the API server does not serve it; is its CRD installed?", what, apiVersion)
		}
	}
	res := r.known[apiVersion][found]
	gvr := gv.WithResource(res.Name)
	return &resource{gvk: gv.WithKind(res.Kind), gvr: gvr, namespaced: res.Namespaced, client: r.client.Resource(gvr)}, nil
}
