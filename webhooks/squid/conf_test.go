package squid

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSquidConfigGolden(t *testing.T) {
	for name, tt := range map[string]struct {
		port  int32
		rules *Template
	}{
		"default.conf": {3128, &Template{
			AllowClients: parsePrefixes("10.0.0.0/8", "fd00:1::/32"),
			AllowPorts:   []int{80, 443},
		}},
		"opened.conf": {8888, &Template{
			AllowClients:      parsePrefixes("127.0.0.0/8"),
			AllowPorts:        []int{443, 80, 8443},
			AllowDestinations: parsePrefixes("127.0.0.0/8", "10.20.0.0/16"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, name, []byte(config(tt.port, accessRules(tt.rules))))
		})
	}
}

func TestSquidConfigDoesNotDependOnOrder(t *testing.T) {
	a := &Template{AllowPorts: []int{80, 443, 80}, AllowClients: parsePrefixes("10.0.0.0/8", "192.168.0.0/16", "10.1.0.0/16")}
	b := &Template{AllowPorts: []int{443, 80}, AllowClients: parsePrefixes("192.168.0.0/16", "10.0.0.0/8")}
	assert.Equal(t, accessRules(b), accessRules(a))
}

func TestSquidConfigHasOneListeningPort(t *testing.T) {
	conf := config(3129, accessRules(&Template{AllowClients: parsePrefixes("10.0.0.0/8"), AllowPorts: []int{443}}))
	require.Equal(t, 1, strings.Count(conf, "\nhttp_port 3129\n"))
	require.Equal(t, 1, strings.Count(conf, "http_port"))
}
