package stack

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/rest"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/walk"
)

// Kubeconfig is the path of a kubeconfig with all rights.
func (s *Stack) Kubeconfig() string { return s.controlPlane.Kubeconfig() }

// DiscoveryURL is the URL of the discovery API, the first one of several.
func (s *Stack) DiscoveryURL() string { return "http://" + s.addrs.discovery[0] }

// DiscoveryURLs are the URLs of the discovery APIs, by the program's name.
func (s *Stack) DiscoveryURLs() map[string]string {
	urls := map[string]string{}
	for i, d := range s.cfg.discoveries() {
		urls[d.Name] = "http://" + s.addrs.discovery[i]
	}
	return urls
}

// Token is the bearer token of the discovery API.
func (s *Stack) Token() string { return s.token }

// TargetPool verifies the local HTTPS site.
func (s *Stack) TargetPool() *x509.CertPool { return s.target.Pool() }

// RESTConfig returns a new client configuration with all rights.
func (s *Stack) RESTConfig() *rest.Config { return s.controlPlane.RESTConfig() }

// Namespace is where the Proxies belong.
func (s *Stack) Namespace() string { return namespace }

// CloudSocket is the path of the cloud adapter's unix socket.
func (s *Stack) CloudSocket() string { return s.cloudSocket() }

// CloudEngineURL is the root of the Compute Engine stand-in.
func (s *Stack) CloudEngineURL() string { return "http://" + s.addrs.cloudEngine }

// PodRoot and VMRoot have a folder for each Pod and VM, the working directory of its process.
func (s *Stack) PodRoot() string { return s.podRoot }

// VMRoot is PodRoot's counterpart for VMs.
func (s *Stack) VMRoot() string { return filepath.Join(s.folder.path, vmsFolder) }

// VisitorIP is an address of the stack's subnet on which the stack does not listen, for the users
// of the stack.
func (s *Stack) VisitorIP() string { return s.subnet.host(hostVisitors).String() }

// TargetURL is the root of the local HTTPS site that proxies may reach.
func (s *Stack) TargetURL() string { return s.target.URL }

// Provider is the name of the provider that runs Pods.
func (s *Stack) Provider() string { return providerName }

// CloudProvider is the name of the provider that runs VMs.
func (s *Stack) CloudProvider() string { return cloudProviderName }

// LogDir is where the programs' logs are.
func (s *Stack) LogDir() string { return s.logDir }

// MetricsURLs are the URLs of the programs' metrics, by program. The target and the external proxy
// have none.
func (s *Stack) MetricsURLs() map[string]string {
	urls := map[string]string{}
	for _, c := range s.children {
		if addr := cmp.Or(c.metrics, c.ops); addr != "" {
			urls[c.name] = "http://" + addr + "/metrics"
		}
	}
	return urls
}

// Folder is the stack's own folder.
func (s *Stack) Folder() string { return s.folder.path }

// ForWalk is what a walk needs.
func (s *Stack) ForWalk(requireSquid bool) (walk.Stack, error) {
	host, portText, err := net.SplitHostPort(s.addrs.external)
	if err != nil {
		return walk.Stack{}, fmt.Errorf("address of the external proxy: %w", err)
	}
	port, err := strconv.ParseInt(portText, 10, 32)
	if err != nil {
		return walk.Stack{}, fmt.Errorf("port of the external proxy: %w", err)
	}
	return walk.Stack{
		Kubectl:       s.cfg.Assets.Kubectl,
		Kubeconfig:    s.Kubeconfig(),
		Namespace:     namespace,
		Provider:      providerName,
		CloudProvider: cloudProviderName,
		CloudVMsURL:   s.CloudVMsURL(),
		DiscoveryURL:  s.DiscoveryURL(),
		Token:         s.token,
		TargetURL:     s.target.URL,
		TargetCA:      s.target.Pool(),
		ExternalHost:  host,
		ExternalPort:  int32(port),
		PodRoot:       s.podRoot,
		RequireSquid:  requireSquid,
	}, nil
}
