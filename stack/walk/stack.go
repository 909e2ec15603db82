package walk

import (
	"context"
	"crypto/x509"

	"k8s.io/client-go/rest"
)

// Stack is what the walk has to know about the stack that it walks.
type Stack struct {
	// Config reaches the API server with all rights.
	Config *rest.Config
	// Namespace in which the walk makes its Proxies. It must exist.
	Namespace string
	// Provider is the name of the provider that runs Pods.
	Provider string
	// CloudProvider is the name of the provider that runs VMs, empty without one,
	// and CloudVMsURL lists those that its cloud holds.
	CloudProvider, CloudVMsURL string
	// DiscoveryURL and Token reach the discovery API.
	DiscoveryURL, Token string
	// TargetURL is the local TLS target's root, such as
	// https://127.41.7.1:8443, and TargetCA verifies it.
	TargetURL string
	TargetCA  *x509.CertPool
	// ExternalHost and ExternalPort are where a proxy runs that is not ours.
	ExternalHost string
	ExternalPort int32
	// PodRoot is the folder in which the process node keeps one subfolder per
	// running Pod, "" when Pods run elsewhere.
	PodRoot string
	// ContainerPID finds the process of a container by its id in a Pod's status.
	// nil on the process node, whose ids say it.
	ContainerPID func(ctx context.Context, containerID string) (int, error)
	// RequireSquid fails the walk when Pods run on the built-in proxy.
	RequireSquid bool
}
