package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// runMain set to "1" turns the test program into the process under test.
const runMain = "DISCOVERY_TEST_RUN_MAIN"

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

// command runs the process under test with this environment and no other.
func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append([]string{runMain + "=1"}, env...)
	return cmd
}

func TestProcessExitCodes(t *testing.T) {
	help := command(t, nil, "--help")
	out, err := help.CombinedOutput()
	require.NoError(t, err, "help is no failure")
	for _, want := range []string{"DISCOVERY_TOKEN", "--verdict-max-age", "[PX_VERDICT_MAX_AGE]", "(default 5m0s)", "(default :8090)", "(default :8083)"} {
		assert.Contains(t, string(out), want)
	}

	bare := command(t, nil)
	out, err = bare.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 1, exit.ExitCode())
	assert.Contains(t, string(out), "discovery: DISCOVERY_TOKEN is empty: set it to the bearer token that crawlers send, name a file of tokens with --tokens-file, or let everybody in with --insecure")
}

func TestProcessEndsOnSIGTERM(t *testing.T) {
	logs := &programtest.Output{}
	cmd := command(t, []string{"DISCOVERY_TOKEN=long-enough-token"}, "--addr", "127.0.0.1:0", "--ops-addr", "127.0.0.1:0", "--kubeconfig", programtest.DeadKubeconfig(t))
	cmd.Stdout, cmd.Stderr = logs, logs
	require.NoError(t, cmd.Start())
	logs.Address(t, "API listening")
	logs.Address(t, "ops endpoint listening")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	assert.NoError(t, cmd.Wait(), logs.String())
}

func TestOptionsListEverythingThatIsWrong(t *testing.T) {
	t.Setenv("DISCOVERY_TOKEN", " \n")
	_, err := parseOptions([]string{
		"--addr", "8090", "--ops-addr", "", "--lease-store", "mysql://user:CANARY@host", "--lease-cooldown", "-1s", "--max-lease-ttl", "10ms",
		"--verdict-max-age", "0", "--system-namespace", "", "--log-level", "loud",
	}, &bytes.Buffer{})
	require.Error(t, err)
	for _, want := range []string{
		`--addr "8090": want host:port, such as :8090`,
		`--ops-addr "": want host:port`,
		`--lease-store "mysql:...": want memory, file:PATH, redis://HOST:PORT, rediss://HOST:PORT or unix:///PATH`,
		`--lease-cooldown -1s: want 0 or more`,
		`--max-lease-ttl 10ms: want at least 1s`,
		`--verdict-max-age 0s: want at least 1s`,
		`--system-namespace is empty`,
		`DISCOVERY_TOKEN is empty`,
		`--log-level "loud"`,
	} {
		assert.ErrorContains(t, err, want)
	}
	assert.NotContains(t, err.Error(), "CANARY")
}

func TestOptions(t *testing.T) {
	t.Setenv("DISCOVERY_TOKEN", "long-enough-token\n")
	t.Setenv("PX_MAX_LEASE_TTL", "2h")
	o, err := parseOptions([]string{"--verdict-max-age", "90s"}, &bytes.Buffer{})
	require.NoError(t, err)
	assert.Equal(t, "long-enough-token", o.token)
	assert.Equal(t, 2*time.Hour, o.maxLeaseTTL)
	assert.Equal(t, 90*time.Second, o.verdictMaxAge)
	assert.Equal(t, ":8090", o.addr)
	assert.Equal(t, ":8083", o.OpsAddr)
	assert.Equal(t, 10*time.Minute, o.leaseCooldown)
	assert.Empty(t, o.namespace)
	assert.Equal(t, "default", o.systemNamespace)
	assert.Equal(t, "memory", o.leaseStore)

	_, err = parseOptions([]string{"--help"}, &bytes.Buffer{})
	assert.ErrorIs(t, err, flags.ErrHelp)
	for _, args := range [][]string{{"--lease-store", "memory2"}, {"--lease-store", "memory:x"}, {"--lease-store", "file"}, {"--lease-store", "file:"}, {"--lease-store", "file:///x"}, {"--lease-store", "redis:localhost"}, {"--lease-store", "redis://:CANARY@host?no_such=1"}, {"--nonsense"}, {"stray"}, {"--insecure=maybe"}} {
		_, err = parseOptions(args, &bytes.Buffer{})
		assert.Error(t, err, args)
	}

	_, err = parseOptions([]string{"--tokens-file", "/x"}, &bytes.Buffer{})
	assert.ErrorContains(t, err, "DISCOVERY_TOKEN and --tokens-file are both set")
	t.Setenv("DISCOVERY_TOKEN", "CANARY-short")
	_, err = parseOptions([]string{"--insecure"}, &bytes.Buffer{})
	assert.ErrorContains(t, err, "DISCOVERY_TOKEN: it has 12 bytes, which can be guessed; want at least 16")
	assert.NotContains(t, err.Error(), "CANARY")

	t.Setenv("DISCOVERY_TOKEN", "")
	_, err = parseOptions([]string{"--insecure"}, &bytes.Buffer{})
	assert.NoError(t, err)
	_, err = parseOptions([]string{"--tokens-file", "/x"}, &bytes.Buffer{})
	assert.NoError(t, err)
	_, err = parseOptions([]string{"--insecure", "--token-rate", "-1"}, &bytes.Buffer{})
	assert.ErrorContains(t, err, "--token-rate -1: want 0, for any number, to 1000000")
}
