package connectproxy

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func prefixes(cidrs ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(cidrs))
	for i, s := range cidrs {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func TestAccess(t *testing.T) {
	access := Access{
		Clients:      prefixes("127.5.6.0/24"),
		Ports:        []uint16{80, 443},
		Destinations: prefixes("0.0.0.0/0", "::/0"),
		Closed:       prefixes("127.0.0.0/14", "10.0.0.0/8", "169.254.0.0/16", "::1/128", "fc00::/7"),
	}
	for name, tt := range map[string]struct {
		client, destination string
		port                uint16
		early, late         bool
	}{
		"public":                          {"127.5.6.7", "192.0.2.1", 443, true, true},
		"open loopback":                   {"127.5.6.7", "127.5.6.2", 443, true, true},
		"closed loopback":                 {"127.5.6.7", "127.0.0.1", 443, true, false},
		"metadata":                        {"127.5.6.7", "169.254.169.254", 80, true, false},
		"metadata in IPv6 form":           {"127.5.6.7", "::ffff:169.254.169.254", 80, true, false},
		"private IPv6":                    {"127.5.6.7", "fd00::1", 443, true, false},
		"closed address with a zone":      {"127.5.6.7", "fd00::1%eth0", 443, true, false},
		"public IPv6":                     {"127.5.6.7", "2001:db8::1", 443, true, true},
		"client in IPv6 form":             {"::ffff:127.5.6.7", "192.0.2.1", 443, true, true},
		"client outside the ranges":       {"127.9.9.9", "192.0.2.1", 443, false, true},
		"port that is not open":           {"127.5.6.7", "192.0.2.1", 25, false, true},
		"this host":                       {"127.5.6.7", "0.0.0.0", 443, true, false},
		"this host in IPv6":               {"127.5.6.7", "::", 443, true, false},
		"multicast":                       {"127.5.6.7", "224.0.0.1", 443, true, false},
		"this host in IPv4-in-IPv6 form":  {"127.5.6.7", "::ffff:0.0.0.0", 443, true, false},
		"loopback in IPv4-in-IPv6 form":   {"127.5.6.7", "::ffff:127.0.0.1", 443, true, false},
		"IPv6 loopback":                   {"127.5.6.7", "::1", 443, true, false},
		"port that is not open, by range": {"127.5.6.7", "127.0.0.1", 444, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.early, access.allowsRequest(netip.MustParseAddr(tt.client), tt.port))
			assert.Equal(t, tt.late, access.allowsDestination(netip.MustParseAddr(tt.destination)))
		})
	}
}

func TestZeroAccessDeniesEverything(t *testing.T) {
	var access Access
	assert.False(t, access.allowsRequest(netip.MustParseAddr("127.0.0.1"), 443))
	assert.False(t, access.allowsDestination(netip.MustParseAddr("192.0.2.1")))
}

func TestAccessToDestinationsIsLimitedToTheOpenOnes(t *testing.T) {
	access := Access{Destinations: prefixes("127.5.6.2/32")}
	assert.True(t, access.allowsDestination(netip.MustParseAddr("127.5.6.2")))
	assert.False(t, access.allowsDestination(netip.MustParseAddr("127.5.6.1")))
}

// Every target ends in an address with a port or an error, never in a panic.
func FuzzSplitTarget(f *testing.F) {
	for _, s := range []string{"example.com:443", "[::1]:80", ":80", "a:0", "a:b:c", "[fe80::1%eth0]:443"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		host, port, err := splitTarget(target)
		if err == nil {
			require.NotEmpty(t, host)
			require.NotZero(t, port)
		}
	})
}
