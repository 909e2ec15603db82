package connectproxy

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever the file says, parsing ends with a configuration that can be used or
// with an error that has a line, and a configuration without an allow rule
// allows nothing.
func FuzzParse(f *testing.F) {
	generated, err := os.ReadFile("testdata/generated.conf")
	require.NoError(f, err)
	f.Add(generated)
	f.Add([]byte("http_port 3128\nhttp_access deny all\n"))
	f.Add([]byte("http_port [::1]:1\nacl a port 1-2\nhttp_access allow a !CONNECT"))
	f.Add([]byte("acl a src ::ffff:1.2.3.4\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := Parse(bytes.NewReader(text))
		if err != nil {
			var at *LineError
			require.ErrorAs(t, err, &at)
			return
		}
		require.NotZero(t, cfg.Listen.Port())
		require.NotEmpty(t, cfg.ListenAddress())
		allows := false
		for _, r := range cfg.Rules {
			allows = allows || r.Allow
		}
		got := cfg.Decide(Facts{Client: addr("127.0.0.1"), Destination: addr("127.0.0.1"), Port: 80, Method: "GET"})
		require.NotEqual(t, NeedsDestination, got)
		if !allows {
			require.Equal(t, Denied, got)
		}
	})
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
