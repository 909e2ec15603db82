package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// shared is the one API server of these tests.
var shared controlplanetest.Shared

func TestMain(m *testing.M) {
	code := m.Run()
	if err := errors.Join(shared.Stop(), goleak.Find()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	require.ErrorIs(t, run(t.Context(), []string{"--help"}, &out), flags.ErrHelp)
	for _, want := range []string{"--subnet", "PX_CONNECT_PROXY", "--ops-addr", "neither root nor"} {
		assert.Contains(t, out.String(), want)
	}
}

func TestRejectedOptions(t *testing.T) {
	good := []string{"--subnet", "127.41.7.0/24", "--root", "pods"}
	with := func(more ...string) []string { return append(append([]string{}, good...), more...) }
	tests := map[string]struct {
		args []string
		says []string
	}{
		"nothing":       {nil, []string{"--subnet \"\"", "--root is missing"}},
		"everything":    {[]string{"--ops-addr", "8085", "--log-level", "loud"}, []string{"--subnet", "--root", `--ops-addr "8085"`, `--log-level "loud"`}},
		"real network":  {with("--subnet", "10.0.0.0/24"), []string{"--subnet", "127.0.0.0/8"}},
		"one address":   {with("--subnet", "127.0.0.9/32"), []string{"too small"}},
		"no name":       {with("--node-name", ""), []string{"--node-name is empty"}},
		"no squid":      {with("--squid", ""), []string{"--squid is empty"}},
		"missing squid": {with("--squid", "/nowhere/squid"), []string{"--squid /nowhere/squid"}},
		"missing built-in": {with("--squid", "builtin", "--connect-proxy", "/nowhere/connectproxy"),
			[]string{"--connect-proxy \"/nowhere/connectproxy\"", "make build"}},
		"missing kubeconfig": {with("--squid", "/bin/sh", "--kubeconfig", "/nowhere/kubeconfig"), []string{"/nowhere/kubeconfig"}},
		"log format":         {with("--log-format", "xml"), []string{"--log-format"}},
		"unknown flag":       {with("--subnets", "x"), []string{"subnets", "--help"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), tt.args, io.Discard)
			require.Error(t, err)
			for _, s := range tt.says {
				assert.ErrorContains(t, err, s)
			}
		})
	}
}

func TestRootBecomesAbsolute(t *testing.T) {
	o, err := parseOptions([]string{"--subnet", "127.41.7.0/24", "--root", "pods"}, io.Discard)
	require.NoError(t, err)
	assert.True(t, len(o.root) > len("/pods") && o.root[0] == '/')
}

// The whole process on a real API server: it runs a Pod as a process, serves its
// metrics, and leaves nothing running when it ends.
func TestProcess(t *testing.T) {
	cp := shared.Get(t)
	pods, root := podsOf(t, cp), t.TempDir()
	third := os.Getpid() & 0xff // of our own, other processes may run these tests now
	p := programtest.Start(t, run, "--kubeconfig", cp.Kubeconfig(), "--ops-addr", "127.0.0.1:0",
		"--subnet", fmt.Sprintf("127.98.%d.0/24", third), "--root", root, "--squid", "builtin", "--connect-proxy", buildConnectProxy(t))
	p.AwaitReady(t)

	pod := proxyPod(`http_port 3128
acl allowed_clients src 127.0.0.0/8
acl allowed_ports port 443
http_access deny !allowed_clients
http_access deny !allowed_ports
http_access allow allowed_clients
http_access deny all
`)
	_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	var running *corev1.Pod
	require.Eventually(t, func() bool {
		running, err = pods.Get(t.Context(), pod.Name, metav1.GetOptions{})
		return err == nil && running.Status.Phase == corev1.PodRunning
	}, 30*time.Second, 20*time.Millisecond)
	assert.Equal(t, "local", running.Spec.NodeName)
	assert.Equal(t, fmt.Sprintf("127.98.%d.16", third), running.Status.PodIP)
	_, metrics := programtest.Get(t, p.Ops(t)+"/metrics")
	assert.Contains(t, metrics, `proxy_operator_node_containers{state="running"} 1`)

	require.NoError(t, p.Stop())
	var pid int
	_, err = fmt.Sscanf(running.Status.ContainerStatuses[0].ContainerID, "process://%d", &pid)
	require.NoError(t, err)
	assert.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "its process is gone")
}

func podsOf(t *testing.T, cp *controlplane.ControlPlane) typedcorev1.PodInterface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cp.RESTConfig())
	require.NoError(t, err)
	return client.CoreV1().Pods(metav1.NamespaceDefault)
}

// proxyPod is the least of a Pod that the node runs.
func proxyPod(config string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "proxy"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "squid", Image: "squid", Env: []corev1.EnvVar{{Name: "SQUID_CONF", Value: config}},
		}}},
	}
}

func buildConnectProxy(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, programtest.Build(dir, "../connectproxy"))
	return filepath.Join(dir, "connectproxy")
}
