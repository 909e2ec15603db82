package stack

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	// cloudProviderName is the provider of the local stack whose instances are VMs of the Compute
	// Engine stand-in.
	cloudProviderName  = "cloud"
	cloudProject       = "demo"     // the only project of the stand-in
	installation       = "local"    // labels the VMs of a stack. Every stack has a stand-in of its own.
	vmsFolder          = "vms"      // has a folder for each VM
	vmBoot, vmShutdown = "1s", "1s" // short, so that users need not wait
)

// cloudEngineProgram is the Compute Engine stand-in. Each of its VMs is a proxy process on an
// address of its own in vmSubnet.
func (s *Stack) cloudEngineProgram() (program, error) {
	root, err := s.folder.sub(vmsFolder)
	if err != nil {
		return program{}, err
	}
	return program{name: programCloudEngine, listens: s.addrs.cloudEngine, args: []string{
		"--addr", s.addrs.cloudEngine, "--project", cloudProject, "--boot", vmBoot, "--shutdown", vmShutdown,
		"--root", root, "--vm-subnet", s.vmSubnet.prefix.String(), "--vm-command", s.vmCommand(),
	}}, nil
}

// vmCommand is the process of each VM: our proxy, as if it were baked into the image.
func (s *Stack) vmCommand() string {
	words := []string{
		s.cfg.program(programConnectProxy), "--listen", "{{.IP}}:{{.Port}}", "--allow-client", "127.0.0.0/8",
		"--allow-destination", s.subnet.prefix.String(), "--allow-port", strconv.Itoa(s.target.Port()),
	}
	for i, w := range words {
		words[i] = strings.ReplaceAll(w, " ", `{{"\x20"}}`) // the command is split at white space
	}
	return strings.Join(words, " ")
}

// cloudProgram is the cloud adapter. It lists more often than in a cluster, so that users need not
// wait.
func (s *Stack) cloudProgram(providers string) program {
	return program{name: programCloud, ops: s.addrs.opsCloud, args: []string{
		"--socket", s.CloudSocket(), "--providers-config", providers, "--installation", installation,
		"--gcp-endpoint", "http://" + s.addrs.cloudEngine, "--list-interval", "1s", "--system-namespace", namespace,
		"--kubeconfig", s.Kubeconfig(), "--ops-addr", s.addrs.opsCloud,
	}}
}

// CloudSocket is the path of the cloud adapter's unix socket.
func (s *Stack) CloudSocket() string { return filepath.Join(s.folder.path, "cloud.sock") }

// providerName is the provider of the local stack.
const providerName = "local"

// renderProviders writes the provider config. It opens what no cluster would: clients and
// destinations on loopback, and the port of the probe target.
func (s *Stack) renderProviders() (string, error) {
	loopback := netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8).String()
	cloud := map[string]any{"name": cloudProviderName, "type": "gcp", "gcp": map[string]any{"project": cloudProject}}
	config := map[string]any{"providers": []any{cloud, map[string]any{
		"name": providerName,
		"type": "kubernetes",
		"kubernetes": map[string]any{
			"image":             "squid:local",
			"allowClients":      []string{loopback},
			"allowDestinations": []string{s.subnet.prefix.String()},
			"allowPorts":        []int{80, 443, s.target.Port()},
		},
	}}}
	content, err := yaml.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("encode the provider config: %w", err)
	}
	return s.folder.write("providers.yaml", content)
}
