package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/outage"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// caFile is a PEM file for --probe-ca, so that tests need no system roots.
func caFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(path, probetest.NewCA(t).PEM(), 0o600))
	return path
}

func TestHelpListsEveryFlag(t *testing.T) {
	var out bytes.Buffer
	require.ErrorIs(t, run(t.Context(), []string{"--help"}, &out), flags.ErrHelp)
	for _, name := range []string{"workers", "shard", "probe-ca", "direct-check", "target-hold", "fleet-share", "fleet-hold", "namespace", "system-namespace", "ops-addr", "kubeconfig", "log-level", "log-format"} {
		assert.Contains(t, out.String(), "--"+name+" ")
		assert.Contains(t, out.String(), "["+flags.EnvName(name)+"]")
	}
}

func TestDefaultsAndFlags(t *testing.T) {
	ca := caFile(t)
	o, err := parseOptions([]string{"--probe-ca", ca}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, 64, o.workers)
	assert.Equal(t, "0/1", o.shard.String())
	assert.Equal(t, ":8082", o.OpsAddr)
	assert.Empty(t, o.namespace)
	assert.Equal(t, "default", o.systemNamespace)
	require.NotNil(t, o.roots)
	assert.Equal(t, outage.Config{DirectCheck: true, TargetHold: 30 * time.Minute, FleetShare: 0.5, FleetHold: 5 * time.Minute}, o.outage)

	t.Setenv("PX_SHARD", "2/3")
	t.Setenv("PX_WORKERS", "64")
	o, err = parseOptions([]string{"--probe-ca", ca, "--workers", "16", "--namespace", "crawl"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, "2/3", o.shard.String())
	assert.Equal(t, 16, o.workers, "the flag wins")
	assert.Equal(t, "crawl", o.namespace)
}

func TestAllInvalidFlagsAreReportedAtOnce(t *testing.T) {
	_, err := parseOptions([]string{
		"--workers", "0", "--shard", "3/2", "--probe-ca", "/no/such/file", "--ops-addr", "8082",
		"--system-namespace", "", "--log-level", "loud", "--fleet-share", "50", "--target-hold", "-1s", "--fleet-hold", "-1s",
	}, io.Discard)
	require.Error(t, err)
	for _, want := range []string{
		"--workers 0: want 1 to 10000", `--shard: shard "3/2"`, "--probe-ca: read root certificates: open /no/such/file",
		`--ops-addr "8082": want host:port`, "--system-namespace is empty", `--log-level "loud"`,
		"--fleet-share 50: want 0 to 1", "--target-hold -1s is negative", "--fleet-hold -1s is negative",
	} {
		assert.ErrorContains(t, err, want)
	}
	for _, bad := range []string{"Crawl", "crawl,other", "a/b", "../x", "-crawl", strings.Repeat("a", 64)} {
		_, err := parseOptions([]string{"--probe-ca", caFile(t), "--namespace", bad, "--system-namespace", bad}, io.Discard)
		assert.ErrorContains(t, err, fmt.Sprintf("--namespace %q is not a namespace name", bad))
		assert.ErrorContains(t, err, fmt.Sprintf("--system-namespace %q is not a namespace name", bad))
	}
	for _, args := range [][]string{{"--workers", "many"}, {"--workers", "10001"}, {"--nonsense"}, {"positional"}, {"--log-format", "xml"}, {"--shard", "-1/2"}} {
		_, err := parseOptions(append(args, "--probe-ca", caFile(t)), io.Discard)
		assert.Error(t, err, strings.Join(args, " "))
	}
}

func TestRunWithoutAKubeconfig(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "kubeconfig")
	err := run(t.Context(), []string{"--probe-ca", caFile(t), "--kubeconfig", missing}, io.Discard)
	assert.ErrorContains(t, err, "--kubeconfig "+missing)
}

func TestPortInUseEndsTheProcess(t *testing.T) {
	taken := probetest.Serve(t, probetest.Hang)
	err := run(t.Context(), []string{"--probe-ca", caFile(t), "--kubeconfig", programtest.DeadKubeconfig(t), "--ops-addr", taken.Addr}, io.Discard)
	assert.ErrorContains(t, err, "--ops-addr "+taken.Addr)
}

func start(t *testing.T, args ...string) *programtest.Process {
	t.Helper()
	return programtest.Start(t, run, append(args, "--probe-ca", caFile(t), "--ops-addr", "127.0.0.1:0")...)
}

func TestNotReadyWithoutTheAPIServer(t *testing.T) {
	p := start(t, "--kubeconfig", programtest.DeadKubeconfig(t))
	status, body := programtest.Get(t, p.Ops(t)+"/livez")
	assert.Equal(t, 200, status, body)
	status, body = programtest.Get(t, p.Ops(t)+"/readyz")
	assert.Equal(t, 503, status)
	assert.Contains(t, body, "the ProxyProbes have not been listed yet")
	require.Eventually(t, func() bool { return strings.Contains(p.String(), "cannot read the ProxyProbes") }, 30*time.Second, 10*time.Millisecond)
	assert.NoError(t, p.Stop())
}

func TestReadyMetricsAndShutdown(t *testing.T) {
	cp := controlplanetest.Start(t)
	crd, err := os.ReadFile("../../manifests/crd/crawl.example.com_proxyprobes.yaml")
	require.NoError(t, err)
	require.NoError(t, controlplane.InstallCRDs(t.Context(), cp.RESTConfig(), crd))
	p := start(t, "--kubeconfig", cp.Kubeconfig())
	p.AwaitReady(t)
	require.Eventually(t, func() bool {
		_, body := programtest.Get(t, p.Ops(t)+"/metrics")
		return strings.Contains(body, `proxy_operator_prober_lease_renewals_total{result="success"} 1`)
	}, 30*time.Second, 50*time.Millisecond)
	_, body := programtest.Get(t, p.Ops(t)+"/metrics")
	for _, name := range []string{
		`proxy_operator_probe_targets{verdict="Healthy"} 0`, "proxy_operator_probe_schedule_lag_seconds_count 0",
		"process_cpu_seconds_total", "go_goroutines",
	} {
		assert.Contains(t, body, name)
	}
	assert.NoError(t, p.Stop(), p)
}
