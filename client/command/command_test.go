package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// discovery is a scripted discovery API.
type discovery struct {
	*httptest.Server
	proxyURL string
	ttl      int
	gone     bool // renewals are answered with 410
	empty    bool // there is no proxy

	mu      sync.Mutex
	reports []string
	calls   map[string]int
}

func startDiscovery(t *testing.T) *discovery {
	d := &discovery{proxyURL: "http://u:CANARY@127.0.0.1:9", ttl: 300, calls: map[string]int{}}
	d.Server = httptest.NewServer(http.HandlerFunc(d.serve))
	t.Cleanup(d.Close)
	return d
}

func (d *discovery) serve(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[r.Method]++
	switch {
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case strings.HasSuffix(r.URL.Path, "/report"):
		text, _ := io.ReadAll(r.Body)
		d.reports = append(d.reports, string(text))
		w.WriteHeader(http.StatusNoContent)
	case d.empty:
		d.problem(w, http.StatusConflict, "no_match")
	case d.gone && strings.HasSuffix(r.URL.Path, "/renew"):
		d.problem(w, http.StatusGone, "lease_gone")
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{
			"leaseID": "ID", "proxy": map[string]any{"name": "a", "namespace": "crawl"}, "proxyURL": d.proxyURL,
			"expiresAt": time.Now().Add(time.Duration(d.ttl) * time.Second), "ttlSeconds": d.ttl,
		})
	}
}

func (d *discovery) problem(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": code})
}

// run runs a program with a lease, and returns its status and the log.
func (d *discovery) run(t *testing.T, o Options) (status int, log string, err error) {
	t.Helper()
	c, err := client.New(client.Config{URL: d.URL, HTTPClient: d.Client()})
	require.NoError(t, err)
	var lines bytes.Buffer
	o.Out, o.ErrOut = io.Discard, io.Discard
	o.Log = slog.New(slog.NewTextHandler(&lines, nil))
	o.Want.Patience = -1
	status, err = Run(t.Context(), c, o)
	assert.NotContains(t, lines.String()+fmt.Sprint(err), "CANARY")
	return status, lines.String(), err
}

func TestRunReportsByExitStatusAndReleases(t *testing.T) {
	for name, test := range map[string]struct {
		program []string
		results map[int]client.Result
		status  int
		report  string
	}{
		"success":                    {[]string{"sh", "-c", "exit 0"}, nil, 0, "ok"},
		"unknown failure":            {[]string{"sh", "-c", "exit 7"}, nil, 7, ""},
		"failure with a result":      {[]string{"sh", "-c", "exit 22"}, map[int]client.Result{22: client.Banned}, 22, "banned"},
		"success without a result":   {[]string{"sh", "-c", "exit 0"}, map[int]client.Result{0: ""}, 0, ""},
		"killed":                     {[]string{"sh", "-c", "kill -9 $$"}, nil, 128 + 9, ""},
		"curl and a dead proxy":      {[]string{"curl", "-s", "https://shop.invalid/"}, nil, 7, "connect_error"},
		"curl without its proxy":     {[]string{"curl", "-s", "--proxy", "http://nowhere.invalid:1", "https://shop.invalid/"}, nil, 5, "connect_error"},
		"a status over the defaults": {[]string{"curl", "-s", "https://shop.invalid/"}, map[int]client.Result{7: ""}, 7, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(test.program[0]); err != nil {
				t.Skipf("%s is not installed", test.program[0])
			}
			d := startDiscovery(t)
			status, _, err := d.run(t, Options{Program: test.program, Results: test.results})
			require.NoError(t, err)
			assert.Equal(t, test.status, status)
			var want []string
			if test.report != "" {
				want = []string{`{"result":"` + test.report + `"}`}
			}
			assert.Equal(t, want, d.reports)
			assert.Equal(t, 1, d.calls[http.MethodDelete])
		})
	}
}

func TestRunFailsWithoutAProgramOrAProxy(t *testing.T) {
	d := startDiscovery(t)
	status, _, err := d.run(t, Options{Program: []string{"no-such-program-at-all"}})
	assert.Equal(t, ExitNotFound, status)
	assert.ErrorContains(t, err, `"no-such-program-at-all": executable file not found in $PATH`)
	assert.Empty(t, d.calls, "no proxy is leased for it")

	d.empty = true
	status, _, err = d.run(t, Options{Program: []string{"true"}})
	assert.Equal(t, ExitNoProxy, status)
	require.ErrorIs(t, err, client.ErrNoProxy)

	d.empty = false
	bad := t.TempDir() + "/bad"
	require.NoError(t, os.WriteFile(bad, []byte("\x7fELF"), 0o700))
	status, _, err = d.run(t, Options{Program: []string{bad}})
	assert.Equal(t, ExitNotStarted, status)
	require.Error(t, err)
	assert.Equal(t, 1, d.calls[http.MethodDelete], "the lease is released")
}

func TestLostLeaseStopsTheProgram(t *testing.T) {
	d := startDiscovery(t)
	d.ttl, d.gone = 2, true
	status, log, err := d.run(t, Options{Program: []string{"sleep", "60"}})
	require.NoError(t, err)
	assert.Equal(t, 128+int(syscall.SIGTERM), status)
	assert.Contains(t, log, "lease lost")
	assert.Empty(t, d.reports)

	status, _, err = d.run(t, Options{Program: []string{"sleep", "1"}, KeepRunning: true})
	require.NoError(t, err)
	assert.Zero(t, status)
}

func TestSignalsReachTheProgram(t *testing.T) {
	d := startDiscovery(t)
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	status, _, err := d.run(t, Options{Program: []string{"sleep", "60"}, Signals: signals})
	require.NoError(t, err)
	assert.Equal(t, 128+int(syscall.SIGTERM), status)
	assert.Equal(t, 1, d.calls[http.MethodDelete])
}

func TestEnviron(t *testing.T) {
	proxy, err := url.Parse("http://u:c2VjcmV0%3D%3D@[::1]:3128")
	require.NoError(t, err)
	env := Environ([]string{"PATH=/bin", "NO_PROXY=*", "no_proxy=*", "HTTP_PROXY=http://other:1", "https_proxy=http://other:1", "ftp_proxy=http://other:1", "WSS_PROXY=http://other:1", "DISCOVERY_TOKEN=CANARY"}, &client.Lease{ProxyURL: proxy, RawProxyURL: "http://u:c2VjcmV0%3D%3D@[::1]:3128"})
	got := map[string]string{}
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		assert.NotContains(t, got, name, "twice")
		got[name] = value
	}
	full := "http://u:c2VjcmV0%3D%3D@[::1]:3128"
	assert.Equal(t, map[string]string{
		"PATH": "/bin", "PROXY_URL": full, "PROXY_SCHEME": "http", "PROXY_HOST": "::1", "PROXY_PORT": "3128",
		"PROXY_USERNAME": "u", "PROXY_PASSWORD": "c2VjcmV0==",
		"ftp_proxy": full, "FTP_PROXY": full, "ws_proxy": full, "WS_PROXY": full, "wss_proxy": full, "WSS_PROXY": full,
		"http_proxy": full, "HTTP_PROXY": full, "https_proxy": full, "HTTPS_PROXY": full, "all_proxy": full, "ALL_PROXY": full,
	}, got)
}

func TestParseResults(t *testing.T) {
	got, err := ParseResults([]string{"22=banned", "0="})
	require.NoError(t, err)
	assert.Equal(t, map[int]client.Result{22: client.Banned, 0: ""}, got)
	for bad, want := range map[string]string{
		"banned":    `"banned": want EXIT-STATUS=RESULT, such as 22=banned`,
		"256=ok":    `"256=ok": want EXIT-STATUS=RESULT`,
		"1=hopeful": `"1=hopeful": want one of ok, rate_limited, banned`,
	} {
		_, err := ParseResults([]string{bad})
		assert.ErrorContains(t, err, want)
	}
}
