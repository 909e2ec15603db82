package connectproxy

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadFileOfTheGeneratedShape(t *testing.T) {
	cfg, err := ReadFile("testdata/generated.conf")
	require.NoError(t, err)

	assert.Equal(t, "127.5.6.16:3128", cfg.ListenAddress())
	assert.Equal(t, netip.MustParseAddr("127.5.6.16"), cfg.Outgoing)
	require.Len(t, cfg.Rules, 5)
	assert.False(t, cfg.Rules[0].Allow)
	assert.True(t, cfg.Rules[0].Terms[0].Not)
	assert.Equal(t, []PortRange{{80, 80}, {443, 443}, {8000, 8010}}, cfg.Rules[1].Terms[0].ACL.Ports)
}

// What the sync hook generates must never contain a directive that this proxy
// refuses.
func TestReadFileOfWhatTheHookGenerates(t *testing.T) {
	files, err := filepath.Glob("../../webhooks/testdata/squid/*.conf")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			cfg, err := ReadFile(f)
			require.NoError(t, err)
			assert.NotEmpty(t, cfg.Rules)
		})
	}
}

func TestReadFileSaysWhichFile(t *testing.T) {
	_, err := ReadFile("testdata/missing.conf")
	require.ErrorIs(t, err, os.ErrNotExist)
	path := filepath.Join(t.TempDir(), "bad.conf")
	require.NoError(t, os.WriteFile(path, []byte("http_port x"), 0o600))
	_, err = ReadFile(path)
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, "line 1")
}

func TestListenAddress(t *testing.T) {
	for text, want := range map[string]string{
		"3128":           ":3128",
		"127.0.0.2:3128": "127.0.0.2:3128",
		"[::1]:65535":    "[::1]:65535",
	} {
		cfg, err := Parse(strings.NewReader("http_port " + text))
		require.NoError(t, err, text)
		assert.Equal(t, want, cfg.ListenAddress())
		assert.Empty(t, cfg.Rules, "no rules means that nothing is allowed")
	}
}

func TestParseRefuses(t *testing.T) {
	const good = "http_port 3128\n"
	tests := map[string]struct {
		text string
		line int
		says string
	}{
		"nothing":                 {"", 0, "no http_port"},
		"only comments":           {"# http_port 3128\n", 0, "no http_port"},
		"no port":                 {"http_port", 1, "takes one"},
		"port zero":               {"http_port 0", 1, "from 1 to 65535"},
		"address and port zero":   {"http_port 127.0.0.1:0", 1, "from 1 to 65535"},
		"negative port":           {"http_port -1", 1, "from 1 to 65535"},
		"port too large":          {"http_port 65536", 1, "from 1 to 65535"},
		"port with options":       {"http_port 3128 ssl-bump", 1, "takes one"},
		"name instead of address": {"http_port localhost:3128", 1, "localhost:3128"},
		"two ports":               {good + "http_port 3129", 2, "second http_port"},
		"outgoing name":           {good + "tcp_outgoing_address example.com", 2, "tcp_outgoing_address"},
		"outgoing with acl":       {good + "tcp_outgoing_address 127.0.0.1 all", 2, "no ACLs"},
		"two outgoing":            {good + "tcp_outgoing_address 127.0.0.1\ntcp_outgoing_address 127.0.0.2", 3, "second"},
		"acl without value":       {good + "acl a src", 2, "at least one value"},
		"acl of unknown type":     {good + "acl a dstdomain .example.com", 2, `"dstdomain" is not one of`},
		"acl of two types":        {good + "acl a src all\nacl a port 80", 3, "type src"},
		"acl all of other type":   {good + "acl all port 80", 2, "type src"},
		"acl address":             {good + "acl a src example.com", 2, `"example.com" is not an address`},
		"acl mask out of range":   {good + "acl a dst 10.0.0.0/33", 2, "not an address or CIDR"},
		"acl bits beyond mask":    {good + "acl a dst 10.0.0.1/8", 2, "write 10.0.0.0/8"},
		"acl netmask":             {good + "acl a dst 10.0.0.0/255.0.0.0", 2, "not an address or CIDR"},
		"acl zone":                {good + "acl a dst fe80::1%eth0", 2, "not an address or CIDR"},
		"acl mapped":              {good + "acl a dst ::ffff:10.0.0.0/104", 2, "write it as IPv4"},
		"acl port zero":           {good + "acl a port 0", 2, "not a port"},
		"acl port backwards":      {good + "acl a port 90-80", 2, "not a port"},
		"access verb":             {good + "http_access permit all", 2, "allow or deny"},
		"access without acl":      {good + "http_access allow", 2, "at least one ACL"},
		"access to unknown acl":   {good + "http_access allow friends", 2, `no acl named "friends"`},
		"access before acl":       {good + "http_access allow a\nacl a src all", 2, `no acl named "a"`},
		"unknown directive":       {good + "\n\nhttp_acess deny all", 4, `unknown directive "http_acess"`},
		"a peer":                  {good + "cache_peer example.com parent 3128 0", 2, "unknown directive"},
		"via on":                  {good + "via on", 2, `only does "via off"`},
		"forwarded_for on":        {good + "forwarded_for on", 2, "forwarded_for delete"},
		"a cache":                 {good + "cache allow all", 2, "cache deny all"},
		"icp":                     {good + "icp_port 3130", 2, "icp_port 0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(strings.NewReader(tt.text))
			var at *LineError
			require.ErrorAs(t, err, &at)
			assert.Equal(t, tt.line, at.Line)
			assert.ErrorContains(t, err, tt.says)
		})
	}
}

func TestParseRefusesWhatIsTooLong(t *testing.T) {
	_, err := Parse(strings.NewReader("http_port 3128\n# " + strings.Repeat("x", maxConfigBytes)))
	require.ErrorContains(t, err, "longer than")
}

type brokenReader struct{}

var errBroken = errors.New("disk on fire")

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

func TestParseKeepsReadErrors(t *testing.T) {
	_, err := Parse(brokenReader{})
	require.ErrorIs(t, err, errBroken)
}
