// Package providers is the provider config: the one file in which the hooks and
// the cloud adapter both read what spec.provider of a Proxy may name.
//
//	providers:
//	- name: pods                 # what Proxies name, a DNS label
//	  type: kubernetes           # run by the hooks alone
//	  kubernetes: {image: …}     # the type's own block
//	- name: gcp-eu
//	  type: gcp                  # run by the cloud adapter
//	  gcp: {project: …}
//
// The file is strict: unknown, repeated and wrongly cased fields are errors, and
// every error names its place. Each side checks the blocks of the types that it
// runs; GCP is here because both have to.
package providers
