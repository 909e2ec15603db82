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
)

var (
	testAddr = netip.MustParseAddr("127.41.7.16")
	testDir  = podDir("/tmp/pods/pod-1")
)

func TestAdaptConfigOfGeneratedConfigurations(t *testing.T) {
	files, err := filepath.Glob("../../webhooks/squid/testdata/*.conf")
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
		assert.Contains(t, got, "\ntcp_outgoing_address "+testAddr.String()+"\n")
		flags, err := proxyFlags(got)
		require.NoError(t, err, f)
		text := " " + strings.Join(flags, " ") + " "
		assert.Contains(t, text, " --listen "+testAddr.String()+":")
		assert.Contains(t, text, " --allow-client 1")
		assert.Contains(t, text, " --allow-port 443 ")
		assert.Contains(t, text, " --deny-destination 169.254.0.0/16 ")
	}
}

func TestAdaptConfigRejectsOtherPorts(t *testing.T) {
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

const generated = `http_port 127.41.7.16:3128
via off
acl allowed_clients src 10.0.0.0/8
acl allowed_ports port 443
acl closed_destinations dst 169.254.0.0/16
http_access deny !allowed_clients
http_access deny !allowed_ports
http_access deny closed_destinations
http_access allow allowed_clients
http_access deny all
`

func TestProxyFlags(t *testing.T) {
	flags, err := proxyFlags(generated)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"--allow-destination", "0.0.0.0/0,::/0", "--listen", "127.41.7.16:3128", "--allow-client", "10.0.0.0/8",
		"--allow-port", "443", "--deny-destination", "169.254.0.0/16",
	}, flags)
	without := strings.ReplaceAll(generated, "acl closed_destinations dst 169.254.0.0/16\n", "")
	_, err = proxyFlags(strings.ReplaceAll(without, "http_access deny closed_destinations\n", ""))
	require.NoError(t, err, "a provider may open all destinations")
}

// The built-in proxy must not allow what squid would deny.
func TestProxyFlagsRejectsOtherConfigurations(t *testing.T) {
	for name, change := range map[string][2]string{
		"unknown directive":            {"via off", "http_acess deny all"},
		"reply rule":                   {"via off", "http_reply_access deny all"},
		"unknown ACL":                  {"via off", "acl friends src 10.0.0.0/8"},
		"ACL of another type":          {"allowed_ports port", "allowed_ports src"},
		"ACL of domain names":          {"closed_destinations dst 169.254.0.0/16", "closed_destinations dstdomain .example.com"},
		"two values in one line":       {"port 443", "port 443 8443"},
		"allow rule comes first":       {"http_access deny !allowed_clients\n", "http_access allow allowed_clients\n"},
		"rule with a second condition": {"allow allowed_clients", "allow allowed_clients allowed_ports"},
		"no last rule":                 {"http_access deny all\n", ""},
		"rule for ports is missing":    {"http_access deny !allowed_ports\n", ""},
		"closed ranges without a rule": {"http_access deny closed_destinations\n", ""},
		"rule without closed ranges":   {"acl closed_destinations dst 169.254.0.0/16\n", ""},
		"no clients":                   {"acl allowed_clients src 10.0.0.0/8\n", ""},
		"port options":                 {"http_port 127.41.7.16:3128", "http_port 127.41.7.16:3128 ssl-bump"},
		"comment after a value":        {"via off", "http_access allow all # for a test"},
	} {
		t.Run(name, func(t *testing.T) {
			conf := strings.Replace(generated, change[0], change[1], 1)
			require.NotEqual(t, generated, conf)
			_, err := proxyFlags(conf)
			assert.ErrorIs(t, err, errForeignConfig)
		})
	}
}

// The result listens on the Pod's address only, and its flags allow only clients that the configuration names.
func FuzzAdaptConfig(f *testing.F) {
	f.Add("http_port 3128\npid_filename /run/squid/squid.pid\n")
	f.Add("  http_port\t3128 # x\nhttp_access deny all")
	f.Add(strings.Replace(generated, "127.41.7.16:", "", 1))
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
		flags, err := proxyFlags(got)
		if err != nil {
			return
		}
		for i, flag := range flags {
			if flag == "--allow-client" {
				require.Contains(t, conf, "allowed_clients")
				require.Contains(t, conf, flags[i+1])
			}
		}
	})
}
