package connectproxy

import "net/netip"

// Allowing returns a configuration without a file: clients may reach the ports
// at the destinations by any method, and nothing else.
func Allowing(listen netip.AddrPort, clients, destinations []netip.Prefix, ports []uint16) *Config {
	ranges := make([]PortRange, len(ports))
	for i, p := range ports {
		ranges[i] = PortRange{From: p, To: p}
	}
	return &Config{
		Listen:   listen,
		Outgoing: specific(listen.Addr()),
		Rules: []Rule{{Allow: true, Terms: []Term{
			{ACL: &ACL{Name: "clients", Kind: KindSource, Prefixes: clients}},
			{ACL: &ACL{Name: "ports", Kind: KindPort, Ports: ranges}},
			{ACL: &ACL{Name: "destinations", Kind: KindDestination, Prefixes: destinations}},
		}}},
	}
}

// specific drops an address that stands for all addresses: nobody can connect
// from it.
func specific(addr netip.Addr) netip.Addr {
	if addr.IsUnspecified() {
		return netip.Addr{}
	}
	return addr
}
