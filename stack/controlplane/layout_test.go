package controlplane

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"
)

func newTestLayout(t *testing.T, addr string) *layout {
	t.Helper()
	l, err := newLayout(Config{Dir: filepath.Join(t.TempDir(), "cp"), Addr: addr, Log: quiet()}, clocktesting.NewFakePassiveClock(epoch()))
	require.NoError(t, err)
	return l
}

func TestConfigValidate(t *testing.T) {
	good := Config{Dir: "/tmp/x", Addr: "127.41.7.1", Log: quiet()}
	require.NoError(t, good.validate())
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"relative folder": {func(c *Config) { c.Dir = "x" }, "absolute path"},
		"no folder":       {func(c *Config) { c.Dir = "" }, "absolute path"},
		"every address":   {func(c *Config) { c.Addr = "0.0.0.0" }, "loopback"},
		"other address":   {func(c *Config) { c.Addr = "192.0.2.1" }, "loopback"},
		"name":            {func(c *Config) { c.Addr = "localhost" }, "loopback"},
		"no address":      {func(c *Config) { c.Addr = "" }, "loopback"},
		"no logger":       {func(c *Config) { c.Log = nil }, "logger"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			tc.change(&cfg)
			assert.ErrorContains(t, cfg.validate(), tc.want)
			_, err := Start(t.Context(), cfg)
			assert.ErrorContains(t, err, tc.want)
		})
	}
	err := Config{}.validate()
	assert.ErrorContains(t, err, "absolute path")
	assert.ErrorContains(t, err, "loopback", "everything that is wrong is said at once")
}

func TestFilesAreReadableForTheOwnerOnly(t *testing.T) {
	l := newTestLayout(t, "127.41.7.2")
	require.NoError(t, filepath.WalkDir(l.dir, func(path string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := entry.Info()
		require.NoError(t, err)
		assert.Zero(t, info.Mode().Perm()&0o077, "%s is open to others", path)
		return nil
	}))
}

func TestKubeconfig(t *testing.T) {
	l := newTestLayout(t, "127.41.7.2")
	cfg, err := clientcmd.BuildConfigFromFlags("", l.path("kubeconfig"))
	require.NoError(t, err)
	assert.Equal(t, l.url(l.apiPort), cfg.Host)
	assert.Equal(t, l.token, cfg.BearerToken)
	assert.Equal(t, l.authority, cfg.CAData)
	assert.Equal(t, l.restConfig().Host, cfg.Host)
}

func TestTwoLayoutsShareNothing(t *testing.T) {
	a, b := newTestLayout(t, "127.41.7.2"), newTestLayout(t, "127.41.7.3")
	assert.NotEqual(t, a.token, b.token)
	assert.NotEqual(t, a.authority, b.authority)
	assert.GreaterOrEqual(t, len(a.token), 43, "256 bits need that many characters at least")
}

func TestCertificates(t *testing.T) {
	l := newTestLayout(t, "127.41.7.2")
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(l.authority))
	for _, name := range []string{"etcd", "apiserver"} {
		pair, err := tls.LoadX509KeyPair(l.path(name+".crt"), l.path(name+".key"))
		require.NoError(t, err, name)
		for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			_, err = pair.Leaf.Verify(x509.VerifyOptions{
				DNSName: "127.41.7.2", Roots: pool, CurrentTime: epoch(), KeyUsages: []x509.ExtKeyUsage{use},
			})
			assert.NoError(t, err, name)
		}
		assert.Error(t, pair.Leaf.VerifyHostname("127.41.7.3"), "no other address is vouched for")
		assert.False(t, pair.Leaf.IsCA)
		_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: epoch().Add(certLifetime + certBackdate)})
		assert.Error(t, err, "it expires")
	}
}

func TestFreePorts(t *testing.T) {
	ports, err := freePorts("127.41.7.2", 3)
	require.NoError(t, err)
	distinct := map[int]bool{}
	for _, port := range ports {
		distinct[port] = true
		ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP("127.41.7.2"), Port: port})
		require.NoError(t, err, "the port is free again")
		require.NoError(t, ln.Close())
	}
	assert.Len(t, distinct, 3)

	_, err = freePorts("192.0.2.1", 1)
	assert.ErrorContains(t, err, "find a free port on 192.0.2.1")
}

func TestLayoutNeedsAFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := newLayout(Config{Dir: filepath.Join(file, "cp"), Addr: "127.41.7.2"}, clocktesting.NewFakePassiveClock(epoch()))
	assert.ErrorContains(t, err, "make the control plane's folder")
}

func testListensOnItsAddressAlone(t *testing.T, cp *ControlPlane) {
	var all []string
	for _, pid := range []int{cp.etcd.Current().PID(), cp.apiServer.Current().PID()} {
		addrs := listening(t, pid)
		all = append(all, addrs...)
	}
	assert.Len(t, all, 3, "etcd's two ports and the API server's: %v", all)
	for _, addr := range all {
		host, _, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		assert.Equal(t, cp.layout.addr, host)
	}
}

// listening returns the TCP addresses that a process listens on, from /proc
// (proc(5), /proc/net/tcp: addresses are hexadecimal in host byte order).
func listening(t *testing.T, pid int) []string {
	t.Helper()
	inodes := map[string]bool{}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	for _, fd := range fds {
		if link, err := os.Readlink(fd); err == nil && strings.HasPrefix(link, "socket:[") {
			inodes[strings.Trim(link, "socket:[]")] = true
		}
	}
	var out []string
	for _, table := range []string{"tcp", "tcp6"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		require.NoError(t, err)
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if fields[3] == "0A" && inodes[fields[9]] { // TCP_LISTEN
				out = append(out, decodeAddr(t, fields[1]))
			}
		}
	}
	return out
}

func decodeAddr(t *testing.T, hex string) string {
	t.Helper()
	host, port, _ := strings.Cut(hex, ":")
	number, err := strconv.ParseUint(port, 16, 16)
	require.NoError(t, err)
	if len(host) != 8 {
		return net.JoinHostPort("ipv6:"+host, strconv.FormatUint(number, 10))
	}
	ip, err := strconv.ParseUint(host, 16, 32)
	require.NoError(t, err)
	return net.JoinHostPort(net.IPv4(byte(ip), byte(ip>>8), byte(ip>>16), byte(ip>>24)).String(), strconv.FormatUint(number, 10))
}

// A service account has the rights that RBAC gives it, none at first: what works
// here with too few rights does not work in a cluster either.
func testAuthorizes(t *testing.T, cp *ControlPlane) {
	accounts := clientOf(t, cp.RESTConfig()).CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	token, err := accounts.CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err, "tokens are signed")
	cfg := cp.RESTConfig()
	cfg.BearerToken = token.Status.Token
	client := clientOf(t, cfg)

	_, err = client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})

	require.True(t, apierrors.IsForbidden(err), "known, and without rights: %v", err)
	assert.ErrorContains(t, err, "system:serviceaccount:default:default")
}

func TestCommandsFollowTheConfig(t *testing.T) {
	l := newTestLayout(t, "127.41.7.2")
	fast, durable := l.etcdCommand("/bin/etcd", false), l.etcdCommand("/bin/etcd", true)
	assert.Contains(t, fast.Args, "--unsafe-no-fsync=true")
	assert.Contains(t, durable.Args, "--unsafe-no-fsync=false")
	server := l.apiServerCommand("/bin/kube-apiserver")
	assert.Contains(t, server.Args, "--bind-address=127.41.7.2")
	assert.Contains(t, server.Args, "--anonymous-auth=false")
	for _, arg := range append(append([]string{}, durable.Args...), server.Args...) {
		assert.NotContains(t, arg, l.token)
	}
	assert.NotNil(t, fast.Env, "ETCD_ variables of the user's are no business of ours")
	assert.Empty(t, fast.Env)
	assert.NotNil(t, server.Env)
}
