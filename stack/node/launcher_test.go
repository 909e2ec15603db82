package node

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func executable(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755))
	return path
}

func TestFindLauncher(t *testing.T) {
	dir := t.TempDir()
	connectProxy, squid := executable(t, dir, "connectproxy"), executable(t, dir, "squid")
	t.Setenv("PATH", dir)

	l, err := FindLauncher(SquidBuiltin, connectProxy)
	require.NoError(t, err)
	assert.Equal(t, &Launcher{Name: "built-in proxy", Path: connectProxy, Builtin: true}, l)
	_, err = l.args(newPodDir("/r", "1"), "")
	require.ErrorIs(t, err, errForeignConfig)

	for _, choice := range []string{SquidAuto, squid} {
		l, err = FindLauncher(choice, connectProxy)
		require.NoError(t, err)
		assert.Equal(t, squid, l.Path)
		assert.False(t, l.Builtin)
		assert.Equal(t, os.Geteuid() == 0, l.Credential != nil, "root gives its power up")
		args, err := l.args(newPodDir("/r", "1"), "")
		require.NoError(t, err)
		assert.Contains(t, args, "-N")
	}
}

func TestFindLauncherNamesMissingProgram(t *testing.T) {
	dir := t.TempDir()
	_, err := FindLauncher(filepath.Join(dir, "squid"), "")
	require.ErrorContains(t, err, "--squid")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = FindLauncher(SquidBuiltin, filepath.Join(dir, "connectproxy"))
	require.ErrorContains(t, err, "--connect-proxy")
	require.ErrorContains(t, err, "make build")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "connectproxy"), nil, 0o644))
	_, err = FindLauncher(SquidBuiltin, filepath.Join(dir, "connectproxy"))
	require.ErrorIs(t, err, os.ErrPermission, "it is there and cannot be executed")
}

func TestUnprivileged(t *testing.T) {
	c, err := unprivileged("no-such-user", "nobody")
	require.NoError(t, err)
	assert.NotZero(t, c.Uid)
	assert.NotZero(t, c.Gid)
	_, err = unprivileged("no-such-user", "nor-this-one")
	require.ErrorContains(t, err, "nor-this-one")
}

// realConfig is a configuration as the hooks generate it: clients on loopback may reach one port.
func realConfig(port uint16) string {
	return fmt.Sprintf(`http_port 3128
pid_filename /run/squid/squid.pid
coredump_dir /run/squid
access_log stdio:/dev/stdout
cache_log /dev/stderr
pinger_enable off
cache deny all
via off
forwarded_for delete
visible_hostname crawl-proxy
shutdown_lifetime 1 seconds
acl allowed_clients src 127.0.0.0/8
acl allowed_ports port %d
acl closed_destinations dst 10.0.0.0/8

http_access deny !allowed_clients
http_access deny !allowed_ports
http_access deny closed_destinations
http_access allow allowed_clients
http_access deny all
`, port)
}

// exercise brings up a Pod on the launcher, sends a request through it, and
// takes it down.
func exercise(t *testing.T, launcher *Launcher) *corev1.Pod {
	t.Helper()
	r := newRig(t, launcher, "127.42.2.0/24")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		host, _, _ := net.SplitHostPort(req.RemoteAddr)
		_, _ = io.WriteString(w, host)
	}))
	defer srv.Close()
	r.create(proxyPod("real", realConfig(netip.MustParseAddrPort(srv.Listener.Addr().String()).Port())))
	pod := r.awaitReady("real")
	assert.Equal(t, containerIDPrefix+launcher.Path, pod.Status.ContainerStatuses[0].ImageID)

	proxy := &url.URL{Scheme: "http", Host: net.JoinHostPort(pod.Status.PodIP, "3128")}
	tr := &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true}
	client := &http.Client{Transport: tr}
	within(t, "the proxy answers", func() bool {
		resp, err := client.Get(srv.URL)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		peer, err := io.ReadAll(resp.Body)
		return err == nil && string(peer) == pod.Status.PodIP
	})
	checkUser(t, pod, launcher)

	r.delete("real", 30)
	r.awaitGone("real")
	assert.NoDirExists(t, r.folder(pod))
	left, err := filepath.Glob(filepath.Join(sharedMemory, newPodDir(r.cfg.Root, pod.UID).service()+"*"))
	require.NoError(t, err)
	assert.Empty(t, left)
	return pod
}

func checkUser(t *testing.T, pod *corev1.Pod, launcher *Launcher) {
	t.Helper()
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pidOf(t, pod.Status.ContainerStatuses[0].ContainerID)))
	require.NoError(t, err)
	want := uint32(os.Geteuid())
	if launcher.Credential != nil {
		want = launcher.Credential.Uid
	}
	assert.Equal(t, want, info.Sys().(*syscall.Stat_t).Uid)
}

func TestBuiltinProxy(t *testing.T) {
	launcher, err := FindLauncher(SquidBuiltin, builtConnectProxy(t))
	require.NoError(t, err)
	exercise(t, launcher)
}

func TestSquid(t *testing.T) {
	path := installedSquid()
	if path == "" && os.Getenv("PX_REQUIRE_SQUID") != "1" {
		t.Skip("no squid found; install Debian's package squid to run this test")
	}
	require.NotEmpty(t, path, "PX_REQUIRE_SQUID=1 and no squid found; install Debian's package squid")
	launcher, err := FindLauncher(path, "")
	require.NoError(t, err)
	exercise(t, launcher)
}
