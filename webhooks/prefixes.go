package webhooks

import (
	"net/netip"
	"slices"
)

// closedDestinations are the addresses that a proxy must not reach unless the
// provider config opens them: everything that is not a host on the internet,
// and the clouds' metadata servers, which give out credentials. Sources: the
// IANA special-purpose address registries (RFC 6890 and its updates).
//
// IPv4-mapped IPv6 (::ffff:0:0/96) is left out on purpose: squid stores IPv4
// addresses in that form and takes the prefix to mean all of IPv4, and a
// mapped address is held against the IPv4 ranges already.
func closedDestinations() []netip.Prefix {
	v4 := parsePrefixes(
		"0.0.0.0/8",        // this host; Linux connects 0.0.0.0 to loopback
		"10.0.0.0/8",       // private
		"100.64.0.0/10",    // carrier-grade NAT, Alibaba's metadata server
		"127.0.0.0/8",      // loopback
		"168.63.129.16/32", // Azure's host agent
		"169.254.0.0/16",   // link-local, metadata servers
		"172.16.0.0/12",    // private
		"192.0.0.0/24",     // protocol assignments, Oracle's metadata server
		"192.168.0.0/16",   // private
		"198.18.0.0/15",    // benchmarks
		"224.0.0.0/4",      // multicast
		"240.0.0.0/4",      // reserved, broadcast
	)
	v6 := parsePrefixes(
		"::/128",         // this host
		"::1/128",        // loopback
		"64:ff9b:1::/48", // local NAT64
		"2002::/16",      // 6to4, which embeds any IPv4 address
		"fc00::/7",       // unique local, GCP's and AWS's metadata servers
		"fe80::/9",       // link-local and the former site-local
		"ff00::/8",       // multicast
	)
	return mergePrefixes(slices.Concat(v4, v6, nat64(v4)))
}

// nat64 is how a NAT64 gateway (RFC 6052, well-known prefix) is asked for
// those IPv4 addresses.
func nat64(v4 []netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, len(v4))
	for i, p := range v4 {
		b := netip.MustParseAddr("64:ff9b::").As16()
		low := p.Addr().As4()
		copy(b[12:], low[:])
		out[i] = netip.PrefixFrom(netip.AddrFrom16(b), 96+p.Bits())
	}
	return out
}

func parsePrefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		out[i] = netip.MustParsePrefix(t)
	}
	return out
}

// mergePrefixes sorts the prefixes and drops those that another one contains.
func mergePrefixes(in []netip.Prefix) []netip.Prefix {
	sorted := make([]netip.Prefix, len(in))
	for i, p := range in {
		sorted[i] = p.Masked()
	}
	slices.SortFunc(sorted, netip.Prefix.Compare)
	var out []netip.Prefix
	for _, p := range sorted {
		if n := len(out); n == 0 || !contains(out[n-1], p) {
			out = append(out, p)
		}
	}
	return out
}

// subtractPrefixes is what is left of from without any address of holes.
func subtractPrefixes(from, holes []netip.Prefix) []netip.Prefix {
	left := from
	for _, hole := range mergePrefixes(holes) {
		var next []netip.Prefix
		for _, p := range left {
			next = append(next, subtract(p, hole)...)
		}
		left = next
	}
	return mergePrefixes(left)
}

// subtract cuts hole out of p by halving p until a half is the hole.
func subtract(p, hole netip.Prefix) []netip.Prefix {
	switch {
	case contains(hole, p):
		return nil
	case !contains(p, hole):
		return []netip.Prefix{p}
	}
	low, high := halves(p)
	return append(subtract(low, hole), subtract(high, hole)...)
}

func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// halves splits a prefix that is not a single address.
func halves(p netip.Prefix) (low, high netip.Prefix) {
	bits := p.Bits() + 1
	raw := p.Addr().AsSlice()
	raw[(bits-1)/8] |= 0x80 >> ((bits - 1) % 8)
	upper, _ := netip.AddrFromSlice(raw)
	return netip.PrefixFrom(p.Addr(), bits), netip.PrefixFrom(upper, bits)
}
