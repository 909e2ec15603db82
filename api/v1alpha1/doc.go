// Package v1alpha1 holds the crawl.example.com/v1alpha1 API: Proxy, the object
// that users apply, and ProxyProbe, the child through which the prober reports.
// It also holds the pure rules that every process must agree on: effective
// addresses, defaults, instance names, spec hashes, conditions and shards.
//
// +kubebuilder:object:generate=true
// +groupName=crawl.example.com
package v1alpha1
