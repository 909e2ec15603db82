package webhooks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// squidRules say who may reach what through one squid. Whatever they do not
// name is denied.
type squidRules struct {
	// allowClients are the sources that may use the proxy at all.
	allowClients []netip.Prefix
	// allowPorts are the only destination ports, for CONNECT and plain
	// requests alike.
	allowPorts []int
	// allowDestinations open parts of closedDestinations.
	allowDestinations []netip.Prefix
}

// squidSettings are the directives that do not decide who gets where. Squid
// runs as an ordinary user on a read-only root. It keeps no cache, and no table
// for the million file descriptors that container runtimes grant, which would
// not fit its memory limit. It adds no header that tells targets about the
// client, and names no host or version in its error pages.
const squidSettings = "pid_filename " + v1alpha1.PodRunDir + `/squid.pid
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

// squidConfig is a squid.conf with these rules of access.
func squidConfig(port int32, access string) string {
	return fmt.Sprintf("# Denies by default. Generated; edits are lost.\nhttp_port %d\n%s\n%s", port, squidSettings, access)
}

// squidAccess writes the rules as directives, the same bytes for the same rules
// in any order.
//
// Strangers are turned away before anything that needs a DNS lookup. The deny
// rule for destinations precedes the allow rule and lists the closed ranges less
// the opened ones, because squid's dst matches a name when any of its
// addresses matches: with an allow rule in front, a name that resolves to an
// opened address and the metadata address would get through to both.
func squidAccess(r squidRules) string {
	var b strings.Builder
	if len(r.allowClients) > 0 && len(r.allowPorts) > 0 {
		writeRules(&b, r)
	}
	b.WriteString("http_access deny all\n")
	return b.String()
}

func writeRules(b *strings.Builder, r squidRules) {
	closed := subtractPrefixes(closedDestinations(), r.allowDestinations)
	writeACL(b, "allowed_clients", "src", mergePrefixes(r.allowClients))
	writeACL(b, "allowed_ports", "port", sortedUnique(r.allowPorts))
	writeACL(b, "closed_destinations", "dst", closed)
	b.WriteString("\nhttp_access deny !allowed_clients\nhttp_access deny !allowed_ports\n")
	if len(closed) > 0 {
		b.WriteString("http_access deny closed_destinations\n")
	}
	b.WriteString("http_access allow allowed_clients\n")
}

// writeACL writes one line per value: squid adds them up, and a diff shows the
// one that changed.
func writeACL[T any](b *strings.Builder, name, kind string, values []T) {
	for _, v := range values {
		fmt.Fprintf(b, "acl %s %s %v\n", name, kind, v)
	}
}

func sortedUnique(in []int) []int {
	out := slices.Clone(in)
	slices.Sort(out)
	return slices.Compact(out)
}
