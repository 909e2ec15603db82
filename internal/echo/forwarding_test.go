package echo

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// forwardingHeaders are the headers that the proxies of the field add.
var forwardingHeaders = []string{
	"Client-Ip", "Forwarded", "Proxy-Authorization", "Proxy-Connection", "True-Client-Ip", "Via",
	"X-Client-Ip", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Proxy-Id", "X-Real-Ip",
	"Cf-Connecting-Ip", "Fastly-Client-Ip", "X-Cluster-Client-Ip", "X-Bluecoat-Via", "Cdn-Loop", "X-Originating-Ip",
}

func TestForwardingHeadersAreKnownByName(t *testing.T) {
	for _, name := range forwardingHeaders {
		assert.True(t, namesProxy(name), name)
	}
	for _, name := range []string{"Accept", "Cache-Control", "Max-Forwards", "Zip", "X-Trip-Id", "Aviation", "User-Agent", "Cookie"} {
		assert.False(t, namesProxy(name), name)
	}
}

func TestForwardingFindsAddressesInValues(t *testing.T) {
	for value, want := range map[string]bool{
		"10.9.8.7":                             true,
		"10.9.8.7:443":                         true,
		"2001:db8::1":                          true,
		"[2001:db8::1]:443":                    true,
		"::ffff:10.9.8.7":                      true,
		"fe80::1%eth0":                         true,
		`for="[2001:db8:cafe::17]:4711";by=_x`: true,
		"unknown, for=10.9.8.7; proto=http":    true,
		"client:10.9.8.7":                      true,
		"IPv6:2001:db8::1":                     true,
		"http://10.9.8.7/":                     true,
		"seen from 10.9.8.7.":                  true,
		"ip-10.9.8.7-x":                        true,
		"":                                     false,
		"1.1 squid":                            false,
		"12:30:45":                             false,
		"10.9.8":                               false,
		"10.9.8.777":                           false,
		"a::b":                                 true, // an address, too
		"std::string":                          false,
		":: x":                                 false,
		"00:1b:44:11:3a:b7":                    false,
		"d41d8cd98f00b204e9800998ecf8427e":     false,
		"max-age=0":                            false,
		strings.Repeat(":", 5000):              false,
		strings.Repeat("1.", 5000):             false,
	} {
		got := Forwarding(http.Header{"X-Made-Up": {value}})
		assert.Equal(t, want, len(got) == 1, "%q: %v", value, got)
	}
	assert.Empty(t, Forwarding(http.Header{"User-Agent": {"Chrome/120.0.0.0"}, "Sec-Ch-Ua-Full-Version": {`"120.0.0.0"`}}), "versions")
}
