// Package connectproxy is a small forward proxy for HTTP: CONNECT tunnels and
// plain requests in absolute form. It stands in for squid where none is
// installed and obeys the same access rules, read from the same configuration
// file (the subset of squid.conf that Parse documents).
//
// It is for laptops and tests: no cache, no authentication, no TLS to itself.
package connectproxy

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
)

// Config is where a proxy listens and what it lets through.
type Config struct {
	// Listen is the address it accepts clients on. An invalid Addr in it
	// means all addresses of the host.
	Listen netip.AddrPort
	// Outgoing is the address it connects to destinations from; the invalid
	// Addr leaves the choice to the kernel.
	Outgoing netip.Addr
	// Rules are asked in order; the first that matches decides. When none
	// does the request is denied.
	Rules []Rule
}

// ListenAddress is Listen in the form that net.Listen takes.
func (c *Config) ListenAddress() string {
	host := ""
	if c.Listen.Addr().IsValid() {
		host = c.Listen.Addr().String()
	}
	return net.JoinHostPort(host, strconv.Itoa(int(c.Listen.Port())))
}

// Rule allows or denies the requests that all of its terms match.
type Rule struct {
	// Allow says whether a match allows or denies.
	Allow bool
	// Terms must all match. Without any, every request does.
	Terms []Term
}

// Term is an ACL, or its negation.
type Term struct {
	// Not turns the answer of ACL around.
	Not bool
	// ACL that is asked.
	ACL *ACL
}

// Kind says which fact of a request an ACL looks at.
type Kind string

// The kinds, named as in squid.conf.
const (
	KindSource      Kind = "src"
	KindDestination Kind = "dst"
	KindPort        Kind = "port"
	KindMethod      Kind = "method"
)

// ACL is a named set of addresses, ports or methods. Only the field that
// belongs to Kind is used.
type ACL struct {
	// Name that rules refer to it by.
	Name string
	// Kind says which of the fields below counts.
	Kind Kind
	// Prefixes of KindSource and KindDestination.
	Prefixes []netip.Prefix
	// Ports of KindPort.
	Ports []PortRange
	// Methods of KindMethod, such as CONNECT.
	Methods []string
}

// PortRange holds the ports From to To, both included.
type PortRange struct{ From, To uint16 }

// Facts are what the rules look at in one request.
type Facts struct {
	// Client is the address that the request came from.
	Client netip.Addr
	// Method such as CONNECT or GET.
	Method string
	// Port of the destination.
	Port uint16
	// Destination is the resolved address. It is invalid as long as the name
	// has not been looked up.
	Destination netip.Addr
}

// Decision is the rules' answer.
type Decision int

const (
	// Denied requests get a 403.
	Denied Decision = iota
	// Allowed requests go through.
	Allowed
	// NeedsDestination: the answer depends on the address that the
	// destination resolves to.
	NeedsDestination
)

// Decide asks the rules. Without a Destination it answers as far as it can, so
// that clients who may not use the proxy at all cannot make it look up names.
func (c *Config) Decide(f Facts) Decision {
	f.Client, f.Destination = f.Client.Unmap(), f.Destination.Unmap()
	for _, r := range c.Rules {
		switch r.match(f) {
		case no:
			continue
		case unknown:
			return NeedsDestination
		}
		if r.Allow {
			return Allowed
		}
		return Denied
	}
	return Denied
}

// answer is a three-valued truth.
type answer int

const (
	no answer = iota
	unknown
	yes
)

// match is the conjunction of the terms: one "no" settles it whatever is not
// known yet.
func (r Rule) match(f Facts) answer {
	out := yes
	for _, t := range r.Terms {
		out = min(out, t.match(f))
	}
	return out
}

func (t Term) match(f Facts) answer {
	got := t.ACL.match(f)
	if t.Not {
		return yes - got // yes and no change places, unknown stays
	}
	return got
}

func (a *ACL) match(f Facts) answer {
	switch a.Kind {
	case KindSource:
		return truth(containsAddr(a.Prefixes, f.Client))
	case KindDestination:
		if !f.Destination.IsValid() {
			return unknown
		}
		return truth(containsAddr(a.Prefixes, f.Destination))
	case KindPort:
		return truth(slices.ContainsFunc(a.Ports, func(r PortRange) bool { return r.From <= f.Port && f.Port <= r.To }))
	case KindMethod:
		return truth(slices.Contains(a.Methods, f.Method))
	}
	return no
}

func containsAddr(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

func truth(b bool) answer {
	if b {
		return yes
	}
	return no
}
