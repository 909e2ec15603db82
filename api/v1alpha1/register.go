package v1alpha1

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of all our kinds.
const Group = "crawl.example.com"

// Version is the one API version that is served and stored.
const Version = "v1alpha1"

// GroupVersion returns crawl.example.com/v1alpha1.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: Version}
}

// ProxyResource returns the resource of Proxy, as dynamic clients name it.
func ProxyResource() schema.GroupVersionResource {
	return GroupVersion().WithResource("proxies")
}

// ProxyProbeResource returns the resource of ProxyProbe, as dynamic clients
// name it.
func ProxyProbeResource() schema.GroupVersionResource {
	return GroupVersion().WithResource("proxyprobes")
}

// AddToScheme registers the kinds of this package with s. It always returns
// nil; the error is there because runtime.SchemeBuilder asks for it.
func AddToScheme(s *runtime.Scheme) error {
	gv := GroupVersion()
	s.AddKnownTypes(gv, &Proxy{}, &ProxyList{}, &ProxyProbe{}, &ProxyProbeList{})
	metav1.AddToGroupVersion(s, gv)
	return nil
}

// FromUnstructured converts what a dynamic client returned into one of our
// types. An error says that a field has another type than ours, which the schema
// rules out.
func FromUnstructured(content map[string]any, into runtime.Object) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, into); err != nil {
		return fmt.Errorf("convert %T from its stored form: %w", into, err)
	}
	return nil
}
