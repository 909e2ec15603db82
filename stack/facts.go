package stack

import (
	"cmp"
	"net/netip"
	"path/filepath"

	"k8s.io/client-go/rest"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/walk"
)

// Kubeconfig is the path of a kubeconfig with all rights.
func (s *Stack) Kubeconfig() string { return s.controlPlane.Kubeconfig() }

// DiscoveryURLs are the URLs of the discovery APIs, by the program's name.
func (s *Stack) DiscoveryURLs() map[string]string {
	urls := map[string]string{}
	for i, d := range s.cfg.discoveries() {
		urls[d.Name] = "http://" + s.addrs.discovery[i]
	}
	return urls
}

// RESTConfig returns a new client configuration with all rights.
func (s *Stack) RESTConfig() *rest.Config { return s.controlPlane.RESTConfig() }

// CloudEngineURL is the root of the Compute Engine stand-in.
func (s *Stack) CloudEngineURL() string { return "http://" + s.addrs.cloudEngine }

// VMRoot has a folder for each VM, the working directory of its process.
func (s *Stack) VMRoot() string { return filepath.Join(s.folder.path, vmsFolder) }

// VisitorIP is an address of the stack's subnet on which the stack does not listen, for the users
// of the stack.
func (s *Stack) VisitorIP() string { return s.subnet.host(hostVisitors).String() }

// BinDir has our programs.
func (s *Stack) BinDir() string { return s.cfg.BinDir }

// TargetCAFile is the PEM file that verifies the probe target.
func (s *Stack) TargetCAFile() string { return filepath.Join(s.folder.path, targetCAFile) }

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

// Facts are what a walk needs, and other users of a stack.
func (s *Stack) Facts() walk.Stack {
	external := netip.MustParseAddrPort(s.addrs.external)
	return walk.Stack{
		Kubectl:       s.cfg.Assets.Kubectl,
		Kubeconfig:    s.Kubeconfig(),
		Namespace:     namespace,
		Provider:      providerName,
		CloudProvider: cloudProviderName,
		CloudVMsURL:   s.CloudEngineURL() + "/control/vms",
		DiscoveryURL:  "http://" + s.addrs.discovery[0],
		Token:         s.token,
		TargetURL:     s.target.URL,
		TargetCA:      s.target.Pool(),
		ExternalHost:  external.Addr().String(),
		ExternalPort:  int32(external.Port()),
		PodRoot:       s.podRoot,
	}
}
