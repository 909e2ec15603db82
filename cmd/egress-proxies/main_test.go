package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRunPassesTheTokenAndTheExitStatus(t *testing.T) {
	var auth string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auth = r.Header.Get("Authorization")
		_, _ = w.Write([]byte(`{"leaseID":"ID","proxy":{},"proxyURL":"http://u:p@127.0.0.1:9","expiresAt":"2100-01-01T00:00:00Z","ttlSeconds":300}`))
	}))
	defer api.Close()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("CANARY\n"), 0o600))
	var out, errOut bytes.Buffer
	args := []string{"lease", "--discovery", api.URL, "--token-file", token, "--", "sh", "-c", "echo $PROXY_HOST; exit 3"}
	status, err := run(t.Context(), args, strings.NewReader(""), &out, &errOut)
	require.NoError(t, err)
	assert.Equal(t, 3, status)
	assert.Equal(t, "127.0.0.1\n", out.String())
	assert.Equal(t, "Bearer CANARY", auth)
	assert.NotContains(t, errOut.String(), "CANARY")
}

func TestRunRefusesBadCommandLines(t *testing.T) {
	for line, want := range map[string]string{
		"rent":                          `unknown command "rent": want lease`,
		"lease":                         "no program: write it after --",
		"lease --discovery http://d":    "no program: write it after --",
		"lease --discovery http://d --": "no program: write it after --",
		"lease -- curl":                 "--discovery is required",
		"lease --discovery d -- curl":   "--discovery: discovery URL: want http://host:port",
		"lease --discovery http://d --selector geo -- curl":            `--selector "geo": want NAME=VALUE`,
		"lease --discovery http://d --schemes ftp -- curl":             `--schemes "ftp": want http, https or socks5`,
		"lease --discovery http://d --ttl 10ms -- curl":                "--ttl: want a second or more",
		"lease --discovery http://d --report x -- curl":                `--report "x": want EXIT-STATUS=RESULT`,
		"lease --discovery http://d --token-file /nonexistent -- curl": "--token-file: open /nonexistent",
		"lease --discovery http://d --ca-file main.go -- curl":         "--ca-file main.go: has no certificate in PEM",
		"lease --discovery http://d curl":                              "unexpected argument",
	} {
		t.Run(line, func(t *testing.T) {
			status, err := run(t.Context(), strings.Fields(line), nil, &bytes.Buffer{}, &bytes.Buffer{})
			assert.Equal(t, exitUsage, status)
			assert.ErrorContains(t, err, want)
		})
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}, {"help"}, {"lease", "--help"}} {
		var out bytes.Buffer
		status, err := run(t.Context(), args, nil, &out, &bytes.Buffer{})
		require.NoError(t, err)
		assert.Zero(t, status)
		assert.Contains(t, out.String(), "lease")
	}
}

func TestParse(t *testing.T) {
	t.Setenv("PX_DISCOVERY", "http://env:1")
	o, err := parse(strings.Fields("--selector geo=eu,tier=gold --exclude crawl/a --schemes http,socks5 --patience 0s -- curl -x --help"), &bytes.Buffer{})
	require.NoError(t, err)
	assert.Equal(t, "http://env:1", o.discovery)
	assert.Equal(t, []string{"curl", "-x", "--help"}, o.program)
	assert.Equal(t, client.Want{
		Selector: map[string]string{"geo": "eu", "tier": "gold"}, Exclude: []string{"crawl/a"}, Schemes: []string{"http", "socks5"},
		TTL: 5 * time.Minute, Patience: -1,
	}, o.want)
}

// /dev/null is a character device, but sends no signals to the program.
func TestSignalsAreForwardedUnlessATerminalSendsThem(t *testing.T) {
	for path, want := range map[string][]os.Signal{
		os.DevNull:  {syscall.SIGTERM, os.Interrupt, syscall.SIGQUIT},
		"/dev/ptmx": {syscall.SIGTERM},
	} {
		in, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		defer in.Close()
		all, stopAll := forwarded(nil) // keeps the signals from ending the test
		defer stopAll()
		got, stop := forwarded(in)
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT} {
			require.NoError(t, syscall.Kill(os.Getpid(), s))
			assert.Equal(t, os.Signal(s), <-all)
		}
		stop() // has delivered all
		var passed []os.Signal
		for len(got) > 0 {
			passed = append(passed, <-got)
		}
		assert.Equal(t, want, passed, path)
	}
}
