package standin

import (
	"errors"
	"fmt"
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
	found, err := r.find(ref.APIVersion, func(res metav1.APIResource) bool { return res.Name == ref.Resource })
	if err != nil {
		return nil, fmt.Errorf("find resource %s in %s: %w", ref.Resource, ref.APIVersion, err)
	}
	return found, nil
}

// byKind finds the resource of a kind.
func (r *resources) byKind(gvk schema.GroupVersionKind) (*resource, error) {
	found, err := r.find(gvk.GroupVersion().String(), func(res metav1.APIResource) bool {
		// pods/status and its like have kinds too.
		return res.Kind == gvk.Kind && !strings.Contains(res.Name, "/")
	})
	if err != nil {
		return nil, fmt.Errorf("find kind %s in %s: %w", gvk.Kind, gvk.GroupVersion(), err)
	}
	return found, nil
}

func (r *resources) find(apiVersion string, match func(metav1.APIResource) bool) (*resource, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, refresh := range []bool{false, true} {
		if refresh {
			list, err := r.discovery.ServerResourcesForGroupVersion(apiVersion)
			if err != nil && !apierrors.IsNotFound(err) {
				return nil, fmt.Errorf("discover the resources of the API server: %w", err)
			}
			if err == nil {
				r.known[apiVersion] = list.APIResources
			}
		}
		for _, res := range r.known[apiVersion] {
			if match(res) {
				gvr := gv.WithResource(res.Name)
				return &resource{gvk: gv.WithKind(res.Kind), gvr: gvr, namespaced: res.Namespaced, client: r.client.Resource(gvr)}, nil
			}
		}
	}
	return nil, errors.New("the API server does not serve it; is its CRD installed?")
}
