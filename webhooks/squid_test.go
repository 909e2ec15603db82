package webhooks

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func prefixes(texts ...string) []netip.Prefix { return parsePrefixes(texts...) }

func TestSquidConfigGolden(t *testing.T) {
	for name, tt := range map[string]struct {
		port  int32
		rules squidRules
	}{
		"default.conf": {3128, squidRules{
			allowClients: prefixes("10.0.0.0/8", "fd00:1::/32"),
			allowPorts:   []int{80, 443},
		}},
		"opened.conf": {8888, squidRules{
			allowClients:      prefixes("127.0.0.0/8"),
			allowPorts:        []int{443, 80, 8443},
			allowDestinations: prefixes("127.0.0.0/8", "10.20.0.0/16"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, "squid/"+name, []byte(squidConfig(tt.port, squidAccess(tt.rules))))
		})
	}
}

func TestSquidConfigDoesNotDependOnOrder(t *testing.T) {
	a := squidRules{allowPorts: []int{80, 443, 80}, allowClients: prefixes("10.0.0.0/8", "192.168.0.0/16", "10.1.0.0/16")}
	b := squidRules{allowPorts: []int{443, 80}, allowClients: prefixes("192.168.0.0/16", "10.0.0.0/8")}
	assert.Equal(t, squidAccess(b), squidAccess(a))
}

func TestSquidConfigHasOneListeningPort(t *testing.T) {
	conf := squidConfig(3129, squidAccess(squidRules{allowClients: prefixes("10.0.0.0/8"), allowPorts: []int{443}}))
	require.Equal(t, 1, strings.Count(conf, "\nhttp_port 3129\n"))
	require.Equal(t, 1, strings.Count(conf, "http_port"))
}
