package squid

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func holds(set []netip.Prefix, a netip.Addr) bool {
	for _, p := range set {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func TestClosedDestinations(t *testing.T) {
	closed := closedDestinations()
	for _, a := range []string{
		"0.0.0.0", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254",
		"168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.168.1.1", "198.18.0.1",
		"224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "fe80::1", "febf::1", "fec0::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "ff02::1",
		"2002:a00:1::", "64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b::127.0.0.1", "64:ff9b:1::1",
	} {
		assert.True(t, holds(closed, netip.MustParseAddr(a)), "%s must be closed", a)
	}
	for _, a := range []string{
		"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1", "168.63.129.17",
		"169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "223.255.255.255",
		"2606:4700:4700::1111", "2001:4860:4860::8888", "64:ff9b::8.8.8.8", "fbff::1",
	} {
		assert.False(t, holds(closed, netip.MustParseAddr(a)), "%s must be open", a)
	}
	for _, p := range closed {
		assert.False(t, p.Addr().Is4In6(), "%s means all of IPv4 to squid", p)
	}
}

func TestSubtractPrefixes(t *testing.T) {
	for name, tt := range map[string]struct{ from, holes, want []string }{
		"nothing":           {[]string{"10.0.0.0/8"}, nil, []string{"10.0.0.0/8"}},
		"everything":        {[]string{"10.0.0.0/8"}, []string{"10.0.0.0/8"}, nil},
		"more than it":      {[]string{"10.0.0.0/16"}, []string{"10.0.0.0/8"}, nil},
		"something else":    {[]string{"10.0.0.0/8"}, []string{"192.168.0.0/16"}, []string{"10.0.0.0/8"}},
		"other family":      {[]string{"10.0.0.0/8"}, []string{"::/8"}, []string{"10.0.0.0/8"}},
		"first half":        {[]string{"10.0.0.0/8"}, []string{"10.0.0.0/9"}, []string{"10.128.0.0/9"}},
		"second quarter":    {[]string{"10.0.0.0/8"}, []string{"10.64.0.0/10"}, []string{"10.0.0.0/10", "10.128.0.0/9"}},
		"two holes":         {[]string{"10.0.0.0/8"}, []string{"10.0.0.0/9", "10.128.0.0/9"}, nil},
		"one address":       {[]string{"10.0.0.0/30"}, []string{"10.0.0.1/32"}, []string{"10.0.0.0/32", "10.0.0.2/31"}},
		"one IPv6 address":  {[]string{"fd00::/126"}, []string{"fd00::3/128"}, []string{"fd00::/127", "fd00::2/128"}},
		"hole in the third": {[]string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"}, []string{"192.168.0.0/17"}, []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.128.0/17"}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.ElementsMatch(t, parsePrefixes(tt.want...), subtractPrefixes(parsePrefixes(tt.from...), parsePrefixes(tt.holes...)))
		})
	}
}

// An address is in the difference exactly when it is in the first and not in
// the second set.
func TestSubtractPrefixesProperty(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	addr := func() netip.Addr {
		return netip.AddrFrom4([4]byte{10, byte(rng.UintN(4)), byte(rng.UintN(4)), byte(rng.UintN(256))})
	}
	set := func() []netip.Prefix {
		out := make([]netip.Prefix, 1+rng.IntN(4))
		for i := range out {
			out[i] = netip.PrefixFrom(addr(), 8+rng.IntN(25)).Masked()
		}
		return out
	}
	for range 500 {
		from, holes := set(), set()
		left := subtractPrefixes(from, holes)
		for range 50 {
			a := addr()
			require.Equal(t, holds(from, a) && !holds(holes, a), holds(left, a), "%s in %v less %v", a, from, holes)
		}
	}
}
