package api

import (
	"net/netip"
	"net/url"
	"strings"
)

// Bounds of a target, as sent and as kept.
const (
	maxTargetInput = 2048
	maxTargetHost  = 253
)

// normalizeTarget brings a target into the one form under which cooldowns are
// kept: the lower-case host name or IP address alone. Of a URL or host:port it
// takes the host, so that all pages, schemes and ports of a site share their
// cooldowns; a last dot goes. "" stays "", for any target. Errors do not repeat
// the target, which may hold a password.
func normalizeTarget(raw string) (string, error) {
	if raw == "" {
		return "", nil
	}
	if len(raw) > maxTargetInput {
		return "", failf(codeInvalidRequest, "target has %d bytes; at most %d are taken", len(raw), maxTargetInput)
	}
	host := strings.ToLower(strings.TrimRight(hostOf(strings.TrimSpace(raw)), "."))
	switch {
	case host == "":
		return "", failf(codeInvalidRequest, "target names no host; want a host name, an IP address or a URL, such as example.com")
	case len(host) > maxTargetHost:
		return "", failf(codeInvalidRequest, "target's host has %d characters; host names have at most %d", len(host), maxTargetHost)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().WithZone("").String(), nil
	}
	if strings.ContainsFunc(host, notInHost) {
		return "", failf(codeInvalidRequest, "target's host has characters that host names do not; use letters, digits, '.', '-' and '_', and the xn-- form of international names")
	}
	return host, nil
}

// hostOf returns the host in a URL, in host:port, in host/path or by itself; ""
// when there is none.
func hostOf(raw string) string {
	if _, err := netip.ParseAddr(raw); err == nil {
		return raw // the colons of an IPv6 address are no port
	}
	if !strings.Contains(raw, "://") {
		raw = "//" + strings.TrimPrefix(raw, "//")
	}
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

func notInHost(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_')
}
