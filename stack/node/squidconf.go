package node

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// adaptConfig adapts the configuration of a Pod, written for a container, to a process that shares
// its host: it listens on and connects from addr only, and writes to dir only.
func adaptConfig(conf string, addr netip.Addr, dir podDir) (string, error) {
	lines := strings.Split(conf, "\n")
	ports := 0
	for i, line := range lines {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "http_port":
			port, err := plainPort(words[1:])
			if err != nil {
				return "", fmt.Errorf("line %d: %q: %w", i+1, line, err)
			}
			lines[i] = "http_port " + netip.AddrPortFrom(addr, port).String()
			ports++
		case "tcp_outgoing_address":
			return "", fmt.Errorf("line %d: tcp_outgoing_address is set by the node", i+1)
		}
	}
	if ports != 1 {
		return "", fmt.Errorf("%d http_port lines, want exactly one", ports)
	}
	lines = append(lines, "tcp_outgoing_address "+addr.String(), "")
	return strings.NewReplacer(
		v1alpha1.PodRunDir, dir.run(),
		"/dev/stdout", dir.accessLog(),
		"/dev/stderr", dir.cacheLog(),
	).Replace(strings.Join(lines, "\n")), nil
}

// plainPort parses the only form of http_port without an address.
func plainPort(args []string) (uint16, error) {
	if len(args) != 1 {
		return 0, errors.New("want http_port and a port number, nothing else")
	}
	n, err := strconv.ParseUint(args[0], 10, 16)
	if err != nil || n == 0 {
		return 0, errors.New("want a port from 1 to 65535")
	}
	return uint16(n), nil
}

// inertDirectives are those of generated configurations that change nothing which a client or a destination of the
// built-in proxy can see.
var inertDirectives = []string{
	"pid_filename", "coredump_dir", "access_log", "cache_log", "netdb_filename", "pinger_enable", "cache", "cache_mem",
	"max_filedescriptors", "via", "forwarded_for", "visible_hostname", "httpd_suppress_version_string",
	"cachemgr_passwd", "shutdown_lifetime", "tcp_outgoing_address",
}

// aclFlags are the flags of the built-in proxy for the ACLs of generated configurations.
var aclFlags = map[string]string{
	"allowed_clients src":     "--allow-client",
	"allowed_ports port":      "--allow-port",
	"closed_destinations dst": "--deny-destination",
}

// proxyFlags translates an adapted configuration into flags of the built-in proxy. It accepts only the configurations
// that the hooks generate: ignoring a directive that it does not know could allow what that directive denies.
func proxyFlags(conf string) ([]string, error) {
	flags := []string{"--allow-destination", "0.0.0.0/0,::/0"}
	access, seen := "", map[string]bool{}
	line := 0
	for text := range strings.Lines(conf) {
		line++
		words := strings.Fields(text)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		switch name := words[0]; {
		case name == "http_port" && len(words) == 2:
			flags = append(flags, "--listen", words[1])
		case name == "http_access":
			access += strings.Join(words[1:], " ") + "\n"
		case name == "acl" && len(words) == 4 && aclFlags[words[1]+" "+words[2]] != "":
			flags = append(flags, aclFlags[words[1]+" "+words[2]], words[3])
			seen[words[1]] = true
		case !slices.Contains(inertDirectives, name):
			return nil, fmt.Errorf("line %d: %q: %w", line, strings.TrimSpace(text), errForeignConfig)
		}
	}
	want := "deny !allowed_clients\ndeny !allowed_ports\n"
	if seen["closed_destinations"] {
		want += "deny closed_destinations\n"
	}
	want += "allow allowed_clients\ndeny all\n"
	if access != want || !seen["allowed_clients"] || !seen["allowed_ports"] {
		return nil, fmt.Errorf("http_access %q: %w", access, errForeignConfig)
	}
	return flags, nil
}

var errForeignConfig = errors.New("the built-in proxy runs only the squid.conf that the hooks generate; install squid for others")
