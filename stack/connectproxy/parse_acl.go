package connectproxy

import (
	"fmt"
	"net/netip"
	"strings"
)

// predefined are the ACLs that squid 5 defines by itself, but for manager,
// which matches a scheme that this proxy refuses anyway.
func predefined() map[string]*ACL {
	return map[string]*ACL{
		"all":          {Name: "all", Kind: KindSource, Prefixes: everywhere()},
		"localhost":    {Name: "localhost", Kind: KindSource, Prefixes: prefixes("127.0.0.1/32", "::1/128")},
		"to_localhost": {Name: "to_localhost", Kind: KindDestination, Prefixes: prefixes("127.0.0.0/8", "0.0.0.0/32", "::1/128", "::/128")},
		"CONNECT":      {Name: "CONNECT", Kind: KindMethod, Methods: []string{"CONNECT"}},
	}
}

func everywhere() []netip.Prefix { return prefixes("0.0.0.0/0", "::/0") }

func prefixes(cidrs ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(cidrs))
	for i, s := range cidrs {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func (p *parser) acl(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("acl takes a name, a type and at least one value, got %q", args)
	}
	name, kind := args[0], Kind(args[1])
	acl := p.acls[name]
	if acl == nil {
		acl = &ACL{Name: name, Kind: kind}
	}
	if acl.Kind != kind {
		return fmt.Errorf("acl %s is of type %s and cannot also be %s", name, acl.Kind, kind)
	}
	for _, v := range args[2:] {
		if err := acl.add(v); err != nil {
			return fmt.Errorf("acl %s: %w", name, err)
		}
	}
	p.acls[name] = acl
	return nil
}

func (a *ACL) add(value string) error {
	switch a.Kind {
	case KindSource, KindDestination:
		ps, err := parsePrefix(value)
		a.Prefixes = append(a.Prefixes, ps...)
		return err
	case KindPort:
		r, err := parsePorts(value)
		a.Ports = append(a.Ports, r)
		return err
	case KindMethod:
		a.Methods = append(a.Methods, value)
		return nil
	}
	return fmt.Errorf("type %q is not one of src, dst, port and method", string(a.Kind))
}

// parsePrefix reads an address, a CIDR or "all". An IPv4-mapped one is refused:
// clients' addresses are compared unmapped, so it would never match.
func parsePrefix(s string) ([]netip.Prefix, error) {
	if s == "all" {
		return everywhere(), nil
	}
	prefix, err := netip.ParsePrefix(s)
	if addr, addrErr := netip.ParseAddr(s); err != nil && addrErr == nil && addr.Zone() == "" {
		prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%q is not an address or CIDR", s)
	case prefix.Addr().Is4In6():
		return nil, fmt.Errorf("%q is an IPv4 address in IPv6 form: write it as IPv4", s)
	case prefix != prefix.Masked():
		return nil, fmt.Errorf("%q has bits set beyond its mask: write %s", s, prefix.Masked())
	}
	return []netip.Prefix{prefix}, nil
}

func parsePorts(s string) (PortRange, error) {
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	a, errA := parsePort(from)
	b, errB := parsePort(to)
	if errA != nil || errB != nil || a > b {
		return PortRange{}, fmt.Errorf("%q is not a port from 1 to 65535 or a range of them", s)
	}
	return PortRange{From: a, To: b}, nil
}
