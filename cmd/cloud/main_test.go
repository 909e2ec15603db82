package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/testwait"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// runMain set to "1" makes the test program the process under test.
const runMain = "CLOUD_TEST_RUN_MAIN"

// server is the one real API server of this package's tests.
var server controlplanetest.Shared

func TestMain(m *testing.M) {
	if os.Getenv(runMain) == "1" {
		main()
	}
	code := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the API server:", err)
		code = 1
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const goodProviders = `
providers:
- {name: pods, type: kubernetes, kubernetes: {image: squid, allowClients: [10.0.0.0/8]}}
- {name: gcp-eu, type: gcp, gcp: {project: demo}}
`

// providersFile writes a provider config and returns its path.
func providersFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "providers.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestHelpAndExitCodes(t *testing.T) {
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
		cmd.Env = []string{runMain + "=1"}
		return cmd
	}
	out, err := command("--help").CombinedOutput()
	require.NoError(t, err, "help is no failure")
	for _, want := range []string{"--installation", "[PX_GCP_ENDPOINT]", "(default 10s)", "(default 10m0s)", "(default :8086)", "--gc-dry-run", "Lease cloud-INSTALLATION"} {
		assert.Contains(t, string(out), want)
	}
	out, err = command().CombinedOutput()
	require.Error(t, err)
	for _, want := range []string{"cloud: ", "--socket is missing", "--providers-config is missing", "--installation"} {
		assert.Contains(t, string(out), want)
	}
}

func TestRefusedOptions(t *testing.T) {
	good := []string{"--socket", filepath.Join(t.TempDir(), "s"), "--installation", "inst", "--providers-config", providersFile(t, goodProviders), "--gcp-endpoint", "http://127.0.0.1:1"}
	tests := map[string]struct {
		args []string
		say  string
	}{
		"installation of capitals": {[]string{"--installation", "Inst"}, `--installation "Inst"`},
		"long installation":        {[]string{"--installation", strings.Repeat("i", 51)}, "1 to 50"},
		"long socket":              {[]string{"--socket", "/" + strings.Repeat("s", 107)}, "107"},
		"endpoint":                 {[]string{"--gcp-endpoint", "localhost:1"}, "--gcp-endpoint"},
		"list interval":            {[]string{"--list-interval", "0s"}, "--list-interval 0s"},
		"quota retry":              {[]string{"--quota-retry", "1ms"}, "--quota-retry 1ms"},
		"rate":                     {[]string{"--mutations-per-second", "0"}, "--mutations-per-second 0"},
		"burst":                    {[]string{"--mutations-burst", "0"}, "--mutations-burst 0"},
		"gc interval":              {[]string{"--gc-interval", "0s"}, "--gc-interval 0s"},
		"gc age":                   {[]string{"--gc-min-age", "0s"}, "--gc-min-age 0s"},
		"system namespace":         {[]string{"--system-namespace", ""}, "--system-namespace is empty"},
		"ops address":              {[]string{"--ops-addr", "x"}, "--ops-addr"},
		"log format":               {[]string{"--log-format", "xml"}, "--log-format"},
		"no such config":           {[]string{"--providers-config", "/no/such/file"}, "provider config: open /no/such/file"},
		"bad config":               {[]string{"--providers-config", providersFile(t, "providers: [{name: a, type: gcp, gcp: {projekt: x}}]")}, `unknown field "projekt"`},
		"no cloud in config":       {[]string{"--providers-config", providersFile(t, "providers: [{name: a, type: kubernetes, kubernetes: {}}]")}, "at least one of type gcp"},
		"missing kubeconfig":       {[]string{"--kubeconfig", "/no/such/kubeconfig"}, "/no/such/kubeconfig"},
		"socket's folder":          {[]string{"--socket", "/no/such/folder/s"}, "--socket: socket /no/such/folder/s"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			args := append(append([]string{}, good...), "--ops-addr", "127.0.0.1:0")
			err := run(t.Context(), append(args, tt.args...), &programtest.Output{})
			assert.ErrorContains(t, err, tt.say)
		})
	}
}

func TestHelpIsNoError(t *testing.T) {
	var out bytes.Buffer
	require.ErrorIs(t, run(t.Context(), []string{"--help"}, &out), flags.ErrHelp)
}

// Without an API server, as on a laptop, the adapter acts without a lease and logs it.
func TestWithoutAPIServerItActsWithoutALease(t *testing.T) {
	t.Parallel()
	w := newProject(t)
	socket := filepath.Join(t.TempDir(), "s")
	p := programtest.Start(t, run, w.adapterArgs("alone", socket)...)
	p.AwaitReady(t)
	c := adapter.NewClient(socket, 20*time.Second)
	t.Cleanup(c.Close)
	name, req := request(1)
	testwait.Eventually(t, "it runs", func() bool {
		got, err := c.Put(t.Context(), "gcp-eu", name, req)
		return err == nil && got.State == adapter.StateRunning
	})

	assert.Contains(t, p.String(), "acts without a lease")
	assert.Contains(t, p.String(), "never collects orphans")

	var metrics string
	testwait.Eventually(t, "its operation was followed to its end", func() bool {
		_, metrics = programtest.Get(t, p.Ops(t)+"/metrics")
		return strings.Contains(metrics, "cloud_instances_made_total{")
	})

	for _, want := range []string{
		`proxy_operator_provider_requests_total{op="insert",provider="gcp-eu",result="ok"} 1`,
		`proxy_operator_cloud_instances_made_total{provider="gcp-eu",reason="new"} 1`,
		`proxy_operator_cloud_instances{failure="",provider="gcp-eu",state="Running"} 1`,
		`proxy_operator_cloud_leader 1`,
	} {
		assert.Contains(t, metrics, want)
	}
	for line := range strings.Lines(metrics) {
		assert.NotContains(t, line, req.UID, "no series per Proxy")
	}
}

// A cloud that does not respond must not take the hooks' Pod out of service.
func TestReadinessDoesNotDependOnTheCloud(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	p := programtest.Start(t, run, "--socket", socket, "--installation", "inst", "--providers-config", providersFile(t, goodProviders),
		"--gcp-endpoint", "http://127.0.0.1:1", "--ops-addr", "127.0.0.1:0")
	p.AwaitReady(t)
	c := adapter.NewClient(socket, 20*time.Second)
	t.Cleanup(c.Close)
	name, req := request(1)
	_, err := c.Put(t.Context(), "gcp-eu", name, req)
	require.ErrorIs(t, err, adapter.ErrNotReady)
	var status *adapter.StatusError
	require.ErrorAs(t, err, &status)
	assert.Equal(t, http.StatusServiceUnavailable, status.Status)
}

// FuzzOptions: a command line, one argument a line, is refused with an error, or
// valid.
func FuzzOptions(f *testing.F) {
	const good = "--socket=/s\n--providers-config=/p\n--installation=eu\n"
	for _, seed := range []string{
		"", good, good + "--mutations-per-second=NaN", good + "--mutations-per-second=+Inf", good + "--gcp-endpoint=http://%zz",
		good + "--gc-interval=-1ns\n--gc-min-age=9223372036854775807ns", good + "--ops-addr=:\n--log-level=LOUD", "--help", "--socket", "-=\n--", good + "--list-interval=1s\nstray",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		o, err := parseOptions(strings.Split(lines, "\n"), io.Discard)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.True(t, o.mutations > 0 && o.mutations <= 1000, o.mutations)
		require.Positive(t, o.mutationsBurst)
		for _, d := range []time.Duration{o.listInterval, o.quotaRetry, o.gcInterval, o.gcMinAge} {
			require.GreaterOrEqual(t, d, time.Second)
		}
		require.Regexp(t, installationPattern, o.installation)
		require.NotEmpty(t, o.systemNamespace)
	})
}

func TestNamespaceDisablesTheOrphanCollector(t *testing.T) {
	for args, disabled := range map[string]bool{
		"": false, "--namespace crawl": true, "--namespace crawl --gc-allow-namespaced": false,
	} {
		base := "--socket s --installation i --providers-config p "
		o, err := parseOptions(strings.Fields(base+args), &bytes.Buffer{})
		require.NoError(t, err)
		assert.Equal(t, disabled, o.gcDisabled() != "", args)
	}
}
