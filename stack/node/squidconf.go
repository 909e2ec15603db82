package node

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// adaptConfig turns the configuration of a Pod, written for a container of its
// own, into one for a process that shares its host: it listens on and connects
// from addr alone, and writes into dir alone.
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

// plainPort reads the only form of http_port that says nothing about addresses.
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
