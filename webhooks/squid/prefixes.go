package squid

import (
	"net/netip"
	"slices"
)

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

// subtractPrefixes is from without the addresses of holes.
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
