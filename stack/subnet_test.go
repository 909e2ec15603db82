package stack

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSubnetsAreExclusive(t *testing.T) {
	seen := map[netip.Prefix]bool{}
	for range 20 {
		s, err := claimSubnet()
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, s.release()) })
		assert.False(t, seen[s.prefix], "%s was given twice", s.prefix)
		seen[s.prefix] = true
		assert.True(t, s.prefix.Addr().IsLoopback())
	}
}

func TestClaimedSubnetCannotBeClaimedAgain(t *testing.T) {
	s, err := claimSubnet()
	require.NoError(t, err)
	addr := netip.AddrPortFrom(s.host(1), claimPort).String()
	ln, err := net.Listen("tcp4", addr)
	if err == nil {
		ln.Close()
	}
	require.Error(t, err)
	require.NoError(t, s.release())
	ln, err = net.Listen("tcp4", addr)
	require.NoError(t, err, "a released one can")
	require.NoError(t, ln.Close())
}

func TestFreePortIsReturnedOnce(t *testing.T) {
	s, err := claimSubnet()
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.release()) }()
	seen := map[string]bool{}
	for range 2000 { // the kernel alone would give some twice
		addr, err := s.freePort(hostServices)
		require.NoError(t, err)
		require.False(t, seen[addr], "%s was given twice", addr)
		seen[addr] = true
	}
}

func TestAddressesAreDistinctAndInTheSubnet(t *testing.T) {
	s, err := claimSubnet()
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.release()) }()
	var a addresses
	require.NoError(t, a.choose(s, 2))
	require.Len(t, a.discovery, 2)
	require.Len(t, a.opsDiscovery, 2)
	seen := map[string]bool{}
	for _, addr := range slices.Concat(a.discovery, a.opsDiscovery, []string{a.webhooks, a.external, a.opsWebhooks, a.opsDriver, a.opsProber, a.opsNode, a.metricsDriver}) {
		parsed, err := netip.ParseAddrPort(addr)
		require.NoError(t, err)
		assert.True(t, s.prefix.Contains(parsed.Addr()))
		assert.False(t, seen[addr], "%s was given twice", addr)
		seen[addr] = true
	}
}
