package echo

import (
	"net/http"
	"net/netip"
	"strings"
)

// Forwarding returns the headers that name a proxy or carry an IP address, with their
// values cut to a bound. The value of Proxy-Authorization is not repeated.
func Forwarding(h http.Header) map[string]string {
	out := map[string]string{}
	for name, values := range h {
		value := strings.Join(values, ", ")
		switch {
		case name == proxyAuthorization:
			out[name] = hidden
		case namesProxy(name) || carriesAddress(name, value):
			out[clip(name, maxName)] = clip(value, maxValue)
		}
	}
	return out
}

// namesProxy reports whether a header is one by which proxies identify themselves or
// their clients, such as Via, X-Forwarded-For, Proxy-Connection and X-Real-Ip.
func namesProxy(name string) bool {
	name = strings.ToLower(name)
	if strings.Contains(name, "proxy") || strings.Contains(name, "forwarded") || name == "cdn-loop" {
		return true
	}
	for word := range strings.SplitSeq(name, "-") {
		if word == "ip" || word == "via" {
			return true
		}
	}
	return false
}

// maxAddress is more than the length of any address with its zone and port.
const maxAddress = 80

// carriesAddress reports whether value contains an IP address, bare, in brackets or with
// a port. Versions of browsers look like addresses (Chrome/120.0.0.0).
func carriesAddress(name, value string) bool {
	if name == "User-Agent" || strings.HasPrefix(name, "Sec-Ch-Ua") {
		return false
	}
	for word := range strings.FieldsFuncSeq(value, notOfAddress) {
		if len(word) <= maxAddress && isAddress(strings.Trim(word, ".")) {
			return true
		}
	}
	return false
}

func notOfAddress(r rune) bool {
	switch {
	case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '.', r == ':', r == '%':
		return false
	}
	return true
}

// isAddress accepts an address, and one after a label or before a port: client:10.0.0.1,
// IPv6:2001:db8::1, 10.0.0.1:80.
func isAddress(word string) bool {
	if addr, err := netip.ParseAddr(word); err == nil {
		return !addr.IsUnspecified() // "::" is punctuation more often
	}
	label, rest, ok := strings.Cut(word, ":")
	if !ok {
		return false
	}
	if addr, err := netip.ParseAddr(label); err == nil && addr.Is4() {
		return true
	}
	return isAddress(rest)
}
