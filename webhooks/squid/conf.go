package squid

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// settings are the directives that do not restrict access. Squid runs as an
// ordinary user on a read-only root. It caches nothing. Its table of file
// descriptors is bounded: one for the million that container runtimes grant would
// not fit its memory limit. It adds no header about the client, and its error
// pages contain no host name and no version.
const settings = "pid_filename " + v1alpha1.PodRunDir + `/squid.pid
coredump_dir ` + v1alpha1.PodRunDir + `
access_log stdio:/dev/stdout
cache_log /dev/stderr
netdb_filename none
pinger_enable off
cache deny all
cache_mem 8 MB
max_filedescriptors 8192
via off
forwarded_for delete
visible_hostname crawl-proxy
httpd_suppress_version_string on
cachemgr_passwd disable all
shutdown_lifetime 3 seconds
`

// config is a squid.conf with these access rules.
func config(port int32, access string) string {
	return fmt.Sprintf("# Denies by default. Generated; edits are lost.\nhttp_port %d\n%s\n%s", port, settings, access)
}

// accessRules are t's rules as directives, the same bytes for the same rules in
// any order. What they do not allow is denied.
//
// Other clients are denied before any rule that needs a DNS lookup. The deny rule
// for destinations precedes the allow rule and lists the closed ranges less the
// opened ones. Squid's dst matches a name when any of its addresses matches: with
// an allow rule first, a name that resolves to an opened address and to the
// metadata address would reach both.
func accessRules(t *Template) string {
	var b strings.Builder
	if len(t.AllowClients) > 0 && len(t.AllowPorts) > 0 {
		closed := subtractPrefixes(closedDestinations(), t.AllowDestinations)
		writeACL(&b, "allowed_clients", "src", mergePrefixes(t.AllowClients))
		writeACL(&b, "allowed_ports", "port", slices.Compact(slices.Sorted(slices.Values(t.AllowPorts))))
		writeACL(&b, "closed_destinations", "dst", closed)
		b.WriteString("\nhttp_access deny !allowed_clients\nhttp_access deny !allowed_ports\n")
		if len(closed) > 0 {
			b.WriteString("http_access deny closed_destinations\n")
		}
		b.WriteString("http_access allow allowed_clients\n")
	}
	b.WriteString("http_access deny all\n")
	return b.String()
}

// writeACL writes one line per value, so that a diff shows the one that changed.
// Squid merges them.
func writeACL[T any](b *strings.Builder, name, kind string, values []T) {
	for _, v := range values {
		fmt.Fprintf(b, "acl %s %s %v\n", name, kind, v)
	}
}

// closedDestinations are the addresses that a proxy must not reach unless the
// provider config opens them: whatever is no host on the internet, and the clouds'
// metadata servers, which serve credentials. Sources: the IANA special-purpose
// address registries (RFC 6890 and its updates).
//
// IPv4-mapped IPv6 (::ffff:0:0/96) is left out on purpose: squid stores IPv4
// addresses in that form and takes the prefix to mean all of IPv4, and it compares
// a mapped address with the IPv4 ranges already.
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

// nat64 are the addresses under which a NAT64 gateway (RFC 6052, well-known
// prefix) forwards to those IPv4 ranges.
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
