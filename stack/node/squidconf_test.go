package node

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/connectproxy"
)

var (
	testAddr = netip.MustParseAddr("127.41.7.16")
	testDir  = podDir("/tmp/pods/pod-1")
)

func TestAdaptConfigOfWhatTheHookGenerates(t *testing.T) {
	files, err := filepath.Glob("../../webhooks/testdata/squid/*.conf")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		conf, err := os.ReadFile(f)
		require.NoError(t, err)
		got, err := adaptConfig(string(conf), testAddr, testDir)
		require.NoError(t, err, f)

		assert.NotContains(t, got, " "+v1alpha1.PodRunDir)
		assert.NotContains(t, got, "/dev/")
		assert.Contains(t, got, "\npid_filename /tmp/pods/pod-1/run/squid.pid\n")
		assert.Contains(t, got, "\naccess_log stdio:/tmp/pods/pod-1/access.log\n")
		assert.Contains(t, got, "\ncache_log /tmp/pods/pod-1/cache.log\n")
		parsed, err := connectproxy.Parse(strings.NewReader(got))
		require.NoError(t, err, f)
		assert.Equal(t, testAddr, parsed.Listen.Addr())
		assert.Equal(t, testAddr, parsed.Outgoing)
	}
}

func TestAdaptConfigRefuses(t *testing.T) {
	for conf, says := range map[string]string{
		"":                                  "0 http_port lines",
		"# http_port 3128":                  "0 http_port lines",
		"http_port 1\nhttp_port 2":          "2 http_port lines",
		"via off\nhttp_port":                "line 2",
		"http_port 0":                       "from 1 to 65535",
		"http_port -3128":                   "from 1 to 65535",
		"http_port 65536":                   "from 1 to 65535",
		"http_port 0.0.0.0:3128":            "from 1 to 65535",
		"http_port 3128 intercept":          "nothing else",
		"http_port 1\ntcp_outgoing_address": "set by the node",
	} {
		_, err := adaptConfig(conf, testAddr, testDir)
		assert.ErrorContains(t, err, says, conf)
	}
}

// Whatever a Pod brings, what comes out listens on the Pod's address only.
func FuzzAdaptConfig(f *testing.F) {
	f.Add("http_port 3128\npid_filename /run/squid/squid.pid\n")
	f.Add("  http_port\t3128 # x\nhttp_access deny all")
	f.Add("acl a src all\r\nhttp_port 1")
	f.Fuzz(func(t *testing.T, conf string) {
		got, err := adaptConfig(conf, testAddr, testDir)
		if err != nil {
			return
		}
		ports := 0
		for line := range strings.Lines(got) {
			if words := strings.Fields(line); len(words) > 0 && words[0] == "http_port" {
				ports++
				listen, err := netip.ParseAddrPort(words[1])
				require.NoError(t, err)
				require.Equal(t, testAddr, listen.Addr())
			}
		}
		require.Equal(t, 1, ports)
	})
}
