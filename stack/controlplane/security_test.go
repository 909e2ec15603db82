package controlplane

import (
	"bufio"
	"fmt"
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
)

func testListensOnItsAddressAlone(t *testing.T, cp *ControlPlane) {
	var all []string
	for _, pid := range []int{cp.etcd.current().PID(), cp.apiServer.current().PID()} {
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
