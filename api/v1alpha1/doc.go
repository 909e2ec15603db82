// Package v1alpha1 holds the crawl.example.com/v1alpha1 API: Proxy, the object
// that users apply, and ProxyProbe, its child with the prober's verdict. It also
// holds the pure functions that several processes share: effective addresses,
// defaults, instance names, spec hashes, conditions and shards.
//
// +kubebuilder:object:generate=true
// +groupName=crawl.example.com
package v1alpha1
