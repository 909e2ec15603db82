package squid

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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

// listener accepts connections until the test ends and returns its port.
func listener(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().(*net.TCPAddr).Port
}

func TestSquidParsesTheConfiguration(t *testing.T) {
	squid := findSquid(t)
	for _, name := range []string{"default.conf", "opened.conf"} {
		t.Run(name, func(t *testing.T) {
			conf, err := os.ReadFile("testdata/" + name)
			require.NoError(t, err)
			dir := squidDir(t)
			path := filepath.Join(dir, "squid.conf")
			require.NoError(t, os.WriteFile(path, []byte(adapted(string(conf), "3128", dir)), 0o644))
			out, err := exec.Command(squid, "-k", "parse", "-f", path).CombinedOutput()
			require.NoError(t, err, "%s", out)
			for _, bad := range []string{"ERROR", "FATAL", "subnetwork", "masks away", "unrecognized", "Bungled"} {
				assert.NotContains(t, string(out), bad)
			}
		})
	}
}

// With nothing opened, every spelling of a private address is refused, and so
// is every port that is not allowed.
func TestSquidRefusesPrivateDestinations(t *testing.T) {
	port := listener(t)
	proxy := startSquidWith(t, &Template{AllowClients: parsePrefixes("127.0.0.0/8"), AllowPorts: []int{port}})
	for _, host := range []string{
		"127.0.0.1", "127.1.2.3", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]",
		"169.254.169.254", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "224.0.0.1",
		"[fd00:ec2::254]", "[fe80::1]", "[64:ff9b::a9fe:a9fe]", "[::ffff:169.254.169.254]",
	} {
		t.Run(host, func(t *testing.T) {
			assert.Equal(t, http.StatusForbidden, connectTo(t, proxy, "", fmt.Sprintf("%s:%d", host, port)))
		})
	}
	for _, host := range []string{"2130706433", "0x7f000001", "017700000001", "127.1"} {
		t.Run(host, func(t *testing.T) {
			code := connectTo(t, proxy, "", fmt.Sprintf("%s:%d", host, port))
			assert.GreaterOrEqual(t, code, 400, "squid may fail to resolve it, but must not connect")
		})
	}
	t.Run("plain request", func(t *testing.T) {
		target := fmt.Sprintf("http://127.0.0.1:%d/", port)
		assert.Equal(t, http.StatusForbidden, ask(t, proxy, "", "GET "+target, "127.0.0.1"))
	})
}

func TestSquidRefusesPortsThatAreNotAllowed(t *testing.T) {
	allowed, other := listener(t), listener(t)
	proxy := startSquidWith(t, &Template{
		AllowClients: parsePrefixes("127.0.0.0/8"), AllowPorts: []int{allowed}, AllowDestinations: parsePrefixes("127.0.0.0/8"),
	})
	target := "127.0.0.1:" + strconv.Itoa(other)
	assert.Equal(t, http.StatusForbidden, connectTo(t, proxy, "", target))
	assert.Equal(t, http.StatusForbidden, ask(t, proxy, "", "GET http://"+target+"/", target))
	assert.Equal(t, http.StatusForbidden, connectTo(t, proxy, "", "127.0.0.1:25"))
	assert.Equal(t, http.StatusOK, connectTo(t, proxy, "", "127.0.0.1:"+strconv.Itoa(allowed)))
}

func TestSquidRefusesOtherClients(t *testing.T) {
	port := listener(t)
	proxy := startSquidWith(t, &Template{
		AllowClients: parsePrefixes("127.0.7.0/24"), AllowPorts: []int{port}, AllowDestinations: parsePrefixes("127.0.0.0/8"),
	})
	target := fmt.Sprintf("127.0.0.1:%d", port)
	assert.Equal(t, http.StatusForbidden, connectTo(t, proxy, "127.0.0.1", target), "not in the range")
	assert.Equal(t, http.StatusForbidden, connectTo(t, proxy, "127.0.8.1", target), "next to the range")
	assert.Equal(t, http.StatusOK, connectTo(t, proxy, "127.0.7.9", target), "in the range")
}

// Opening a part opens that part and no more.
func TestSquidOpensWhatTheConfigNames(t *testing.T) {
	port := listener(t)
	proxy := startSquidWith(t, &Template{
		AllowClients: parsePrefixes("127.0.0.0/8"), AllowPorts: []int{port}, AllowDestinations: parsePrefixes("127.0.0.1/32"),
	})
	assert.Equal(t, http.StatusOK, connectTo(t, proxy, "", fmt.Sprintf("127.0.0.1:%d", port)))
	for _, host := range []string{"127.0.0.2", "127.0.0.0", "169.254.169.254", "10.0.0.1", "[::1]"} {
		assert.Equal(t, http.StatusForbidden, connectTo(t, proxy, "", fmt.Sprintf("%s:%d", host, port)), host)
	}
}

func TestSquidWithoutClientsRefusesAll(t *testing.T) {
	port := listener(t)
	proxy := startSquidWith(t, &Template{AllowPorts: []int{port}, AllowDestinations: parsePrefixes("127.0.0.0/8")})
	assert.Equal(t, http.StatusForbidden, connectTo(t, proxy, "", fmt.Sprintf("127.0.0.1:%d", port)))
}

// The target learns nothing about the client, and squid's cache manager answers no
// client.
func TestSquidDisclosesNothing(t *testing.T) {
	var seen http.Header
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header.Clone() }))
	t.Cleanup(target.Close)
	port := portNumber(t, target.URL)
	proxy := startSquidWith(t, &Template{
		AllowClients: parsePrefixes("127.0.0.0/8"), AllowPorts: []int{port}, AllowDestinations: parsePrefixes("127.0.0.0/8"),
	})
	require.Equal(t, http.StatusOK, ask(t, proxy, "", "GET "+target.URL+"/", fmt.Sprintf("127.0.0.1:%d", port)))
	for name := range seen {
		assert.False(t, strings.EqualFold(name, "Via") || strings.HasPrefix(strings.ToLower(name), "x-forwarded"), name)
	}
	for _, line := range []string{
		"GET /squid-internal-mgr/info", "GET http://" + proxy + "/squid-internal-mgr/info",
		"GET http://crawl-proxy/squid-internal-mgr/config", "GET cache_object://127.0.0.1/info",
		fmt.Sprintf("GET cache_object://127.0.0.1:%d/info", port),
	} {
		assert.GreaterOrEqual(t, ask(t, proxy, "", line, proxy), 400, line)
	}
}

func portNumber(t *testing.T, rawURL string) int {
	t.Helper()
	u, err := url.Parse(rawURL)
	require.NoError(t, err)
	n, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	return n
}
