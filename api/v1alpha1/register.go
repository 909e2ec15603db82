// Package v1alpha1 holds the crawl.example.com/v1alpha1 API: Proxy, the object
// that users apply, and ProxyProbe, its child with the prober's verdict. It also
// holds the pure functions that several processes share: effective addresses,
// defaults, instance names, spec hashes and shards. A field with omitempty is optional.
//
// +kubebuilder:object:generate=true
// +groupName=crawl.example.com
package v1alpha1

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// Group is the API group of all our kinds.
	Group = "crawl.example.com"
	// Version is the one API version that is served and stored.
	Version = "v1alpha1"
)

// GroupVersion returns crawl.example.com/v1alpha1.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: Version}
}

// ProxyResource returns the resource of Proxy for dynamic clients.
func ProxyResource() schema.GroupVersionResource {
	return GroupVersion().WithResource("proxies")
}

// ProxyProbeResource returns the resource of ProxyProbe for dynamic clients.
func ProxyProbeResource() schema.GroupVersionResource {
	return GroupVersion().WithResource("proxyprobes")
}

// AddToScheme registers the kinds of this package with s. It always returns nil;
// runtime.SchemeBuilder requires the error result.
func AddToScheme(s *runtime.Scheme) error {
	gv := GroupVersion()
	s.AddKnownTypes(gv, &Proxy{}, &ProxyList{}, &ProxyProbe{}, &ProxyProbeList{})
	metav1.AddToGroupVersion(s, gv)
	return nil
}

// FromUnstructured converts an object of a dynamic client into one of our types.
// It fails on a field of a wrong type, which the schema excludes.
func FromUnstructured(content map[string]any, into runtime.Object) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, into); err != nil {
		return fmt.Errorf("convert %T from its stored form: %w", into, err)
	}
	return nil
}
