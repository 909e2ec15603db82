package stack

import (
	"fmt"
	"net/netip"

	"sigs.k8s.io/yaml"
)

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
