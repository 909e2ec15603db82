package connectproxy

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func mustParse(t testing.TB, text string) *Config {
	t.Helper()
	cfg, err := Parse(strings.NewReader(text))
	require.NoError(t, err)
	return cfg
}

func addr(s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(s)
}

func TestDecide(t *testing.T) {
	const generated = `
http_port 3128
acl clients src 127.5.6.0/24
acl ports port 80 443
acl closed dst 127.0.0.0/14 10.0.0.0/8 169.254.0.0/16 ::1/128 fc00::/7
http_access deny !clients
http_access deny !ports
http_access deny closed
http_access allow clients
http_access deny all
`
	tests := []struct {
		name, client, dst string
		port              uint16
		want              Decision
	}{
		{"public", "127.5.6.7", "192.0.2.1", 443, Allowed},
		{"opened loopback", "127.5.6.7", "127.5.6.2", 443, Allowed},
		{"closed loopback", "127.5.6.7", "127.0.0.1", 443, Denied},
		{"metadata", "127.5.6.7", "169.254.169.254", 80, Denied},
		{"metadata in IPv6 form", "127.5.6.7", "::ffff:169.254.169.254", 80, Denied},
		{"private IPv6", "127.5.6.7", "fd00::1", 443, Denied},
		{"public IPv6", "127.5.6.7", "2001:db8::1", 443, Allowed},
		{"client in IPv6 form", "::ffff:127.5.6.7", "192.0.2.1", 443, Allowed},
		{"stranger", "127.9.9.9", "192.0.2.1", 443, Denied},
		{"stranger asks for a name", "127.9.9.9", "", 443, Denied},
		{"port", "127.5.6.7", "192.0.2.1", 25, Denied},
		{"port of a name", "127.5.6.7", "", 25, Denied},
		{"name", "127.5.6.7", "", 443, NeedsDestination},
	}
	cfg := mustParse(t, generated)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := cfg.Decide(Facts{Client: addr(tt.client), Method: "CONNECT", Port: tt.port, Destination: addr(tt.dst)})
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestDecideByMethodAndPredefinedACLs(t *testing.T) {
	cfg := mustParse(t, `
http_port 3128
acl tls port 443
http_access deny CONNECT !tls
http_access deny to_localhost
http_access allow localhost
`)
	facts := Facts{Client: addr("127.0.0.1"), Method: "CONNECT", Port: 443, Destination: addr("192.0.2.1")}
	assert.Equal(t, Allowed, cfg.Decide(facts))
	facts.Port = 80
	assert.Equal(t, Denied, cfg.Decide(facts))
	facts.Method = "GET"
	assert.Equal(t, Allowed, cfg.Decide(facts))
	facts.Destination = addr("127.0.0.9")
	assert.Equal(t, Denied, cfg.Decide(facts))
}

// squid answers with the opposite of the last rule when none matches; this
// proxy denies.
func TestDecideDeniesWithoutAMatch(t *testing.T) {
	for _, rules := range []string{"", "acl a src 10.0.0.0/8\nhttp_access deny a", "acl a src 10.0.0.0/8\nhttp_access allow a"} {
		cfg := mustParse(t, "http_port 1\n"+rules)
		assert.Equal(t, Denied, cfg.Decide(Facts{Client: addr("192.0.2.1"), Destination: addr("192.0.2.2"), Port: 443, Method: "GET"}), rules)
	}
}

func TestAllowing(t *testing.T) {
	cfg := Allowing(netip.MustParseAddrPort("127.5.6.3:3128"), prefixes("127.5.6.0/24"), prefixes("127.5.6.2/32"), []uint16{443, 8443})
	ok := Facts{Client: addr("127.5.6.9"), Method: "GET", Port: 8443, Destination: addr("127.5.6.2")}
	assert.Equal(t, Allowed, cfg.Decide(ok))
	assert.Equal(t, addr("127.5.6.3"), cfg.Outgoing)
	for name, change := range map[string]func(*Facts){
		"client":      func(f *Facts) { f.Client = addr("127.5.7.9") },
		"port":        func(f *Facts) { f.Port = 80 },
		"destination": func(f *Facts) { f.Destination = addr("127.5.6.1") },
	} {
		f := ok
		change(&f)
		assert.Equal(t, Denied, cfg.Decide(f), name)
	}
}

func TestAllowingOnAllAddressesLeavesTheSourceToTheKernel(t *testing.T) {
	cfg := Allowing(netip.MustParseAddrPort("0.0.0.0:3128"), nil, nil, nil)
	assert.False(t, cfg.Outgoing.IsValid())
}

// An answer that does not need the destination is the answer for every
// destination.
func TestDecideWithoutDestinationAgreesWithAnyDestination(t *testing.T) {
	cfg := mustParse(t, `
http_port 3128
acl c src 127.0.0.0/8
acl p port 1-1000
acl d dst 10.0.0.0/8 2001:db8::/32
acl e dst 10.1.0.0/16
http_access deny !c d
http_access allow p e
http_access deny d !e
http_access allow CONNECT c !p
http_access deny !p
http_access allow c
`)
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		f := randomFacts(random)
		early := f
		early.Destination = netip.Addr{}
		if got := cfg.Decide(early); got != NeedsDestination {
			require.Equal(t, got, cfg.Decide(f), "%+v", f)
		}
		require.NotEqual(t, NeedsDestination, cfg.Decide(f), "%+v", f)
	}
}

func randomFacts(r *rand.Rand) Facts {
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	return Facts{
		Client:      addr(pick("127.0.0.1", "127.200.1.1", "10.9.9.9", "::1", "::ffff:127.0.0.1")),
		Method:      pick("CONNECT", "GET"),
		Port:        uint16(r.IntN(2000)),
		Destination: addr(pick("10.0.0.1", "10.1.0.1", "192.0.2.1", "2001:db8::1", "::ffff:10.1.0.1")),
	}
}
