package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	providersFile = "../../examples/providers.yaml"
	recorded      = "../../metacontroller/testdata/recorded/2-sync-no-children.json"
	token         = "0123456789abcdef0123456789abcdef"
)

// start runs the process until the test ends, and returns it with the address of
// its hooks.
func start(t *testing.T, args ...string) (p *programtest.Process, hooks string) {
	t.Helper()
	args = append([]string{"--listen", "127.0.0.1:0", "--ops-addr", "127.0.0.1:0", "--providers-config", providersFile}, args...)
	p = programtest.Start(t, run, args...)
	p.AwaitReady(t)
	return p, p.Address(t, "hooks listening")
}

func client() *http.Client {
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
}

func callSync(t *testing.T, base, bearer string) int {
	t.Helper()
	body, err := os.Open(recorded)
	require.NoError(t, err)
	defer body.Close()
	req, err := http.NewRequest(http.MethodPost, base+"/hooks/sync", body)
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := client().Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestInsecure(t *testing.T) {
	p, hooks := start(t, "--insecure")
	assert.Equal(t, http.StatusOK, callSync(t, "http://"+hooks, ""))
	require.Eventually(t, func() bool { // counted after its answer
		code, page := programtest.Get(t, p.Ops(t)+"/metrics")
		return code == http.StatusOK && strings.Contains(page, `proxy_operator_hook_requests_total{code="200",hook="sync"} 1`)
	}, 20*time.Second, 10*time.Millisecond)
	code, _ := programtest.Get(t, p.Ops(t)+"/livez")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, p.String(), "INSECURE")
}

// Without an API server there are no Events, and nothing else is missing.
func TestEventsNeedAnAPIServer(t *testing.T) {
	p, hooks := start(t, "--insecure")
	assert.Equal(t, http.StatusOK, callSync(t, "http://"+hooks, ""))
	assert.Equal(t, 1, strings.Count(p.String(), "no Events are sent"))

	p, hooks = start(t, "--insecure", "--events=false", "--kubeconfig", "not looked at")
	assert.Equal(t, http.StatusOK, callSync(t, "http://"+hooks, ""))
	assert.NotContains(t, p.String(), "Events")
	_, page := programtest.Get(t, p.Ops(t)+"/metrics")
	assert.NotContains(t, page, "events_total")
}

// An API server that is not there costs no answer, and no time at the end.
func TestEventsToADeadServer(t *testing.T) {
	dead := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(dead, []byte(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]}`), 0o600))
	p, hooks := start(t, "--insecure", "--kubeconfig", dead)
	for i := range 20 {
		body := fmt.Sprintf(`{"controller":{},"parent":{"apiVersion":"crawl.example.com/v1alpha1","kind":"Proxy","metadata":{"namespace":"n","name":"a","uid":"u-%d"},
			"spec":{"mode":"Managed","provider":"nobody's"}},"children":{"Pod.v1":{},"ProxyProbe.crawl.example.com/v1alpha1":{}},"related":{},"finalizing":false}`, i)
		resp, err := client().Post("http://"+hooks+"/hooks/sync", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		_ = resp.Body.Close()
		assert.Equal(t, http.StatusOK, resp.StatusCode)
	}
	_, page := programtest.Get(t, p.Ops(t)+"/metrics")
	assert.Contains(t, page, `proxy_operator_events_total{result="sent"} 0`)
}

// The hooks ask the adapter over its socket, and are ready without it.
func TestCloudSocket(t *testing.T) {
	config := filepath.Join(t.TempDir(), "providers.yaml")
	require.NoError(t, os.WriteFile(config, []byte("providers: [{name: fleet, type: gcp, gcp: {project: demo}}]"), 0o600))
	socket := filepath.Join(t.TempDir(), "s")
	p, hooks := start(t, "--insecure", "--providers-config", config, "--cloud-socket", socket)
	body := `{"controller":{},"parent":{"apiVersion":"crawl.example.com/v1alpha1","kind":"Proxy","metadata":{"namespace":"n","name":"a","uid":"u","finalizers":["metacontroller.io/compositecontroller-proxies"]},
		"spec":{"mode":"Managed","provider":"fleet","placement":{"zone":"z","machineType":"m","image":"i"}}},"children":{"Pod.v1":{},"ProxyProbe.crawl.example.com/v1alpha1":{}},"related":{},"finalizing":false}`
	sync := func() string {
		resp, err := client().Post("http://"+hooks+"/hooks/sync", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode, string(answer))
		return string(answer)
	}
	assert.Contains(t, sync(), "CloudAdapterUnavailable")

	ln, err := net.Listen("unix", socket)
	require.NoError(t, err)
	asked := make(chan string, 1)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.Path
		fmt.Fprint(w, `{"state":"Running","action":"None","providerID":"zones/z/instances/x","instanceID":"7","ip":"203.0.113.7"}`)
	})}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close() })
	assert.Contains(t, sync(), `"ip":"203.0.113.7"`)
	assert.Regexp(t, "^PUT /v1/instances/fleet/proxy-", <-asked)
	_, page := programtest.Get(t, p.Ops(t)+"/metrics")
	assert.Contains(t, page, `proxy_operator_adapter_requests_total{method="put",result="ok"} 1`)
	assert.Contains(t, page, `proxy_operator_adapter_requests_total{method="put",result="unavailable"} 1`)
}

func TestTLSAndToken(t *testing.T) {
	cert, key := keyPair(t)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	p, hooks := start(t, "--tls-cert", cert, "--tls-key", key, "--token-file", file)
	assert.Equal(t, http.StatusOK, callSync(t, "https://"+hooks, token))
	assert.Equal(t, http.StatusUnauthorized, callSync(t, "https://"+hooks, ""))
	assert.Equal(t, http.StatusUnauthorized, callSync(t, "https://"+hooks, token[1:]))
	assert.NotContains(t, p.String(), "INSECURE")
	assert.NotContains(t, p.String(), token)
}

func keyPair(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	return certFile, keyFile
}

func TestRefusesToStart(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("providers: [{name: g, type: gcp}]"), 0o600))
	cloudy := filepath.Join(t.TempDir(), "cloudy.yaml")
	require.NoError(t, os.WriteFile(cloudy, []byte("providers: [{name: gcp-eu, type: gcp, gcp: {project: demo}}]"), 0o600))
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for name, tt := range map[string]struct {
		args []string
		want []string
	}{
		"nothing given":       {nil, []string{"--tls-cert and --tls-key are missing", "--token-file is missing", "--providers-config is missing", "--insecure"}},
		"half a pair":         {[]string{"--insecure", "--providers-config", providersFile, "--tls-cert", "x"}, []string{"give both or neither"}},
		"no such certificate": {[]string{"--insecure", "--providers-config", providersFile, "--tls-cert", "nope.crt", "--tls-key", "nope.key"}, []string{"--tls-cert", "nope.crt"}},
		"no such token file":  {[]string{"--insecure", "--providers-config", providersFile, "--token-file", "nope"}, []string{"--token-file", "nope"}},
		"empty token file":    {[]string{"--insecure", "--providers-config", providersFile, "--token-file", empty}, []string{"--token-file", "holds no token"}},
		"no such config":      {[]string{"--insecure", "--providers-config", "nope.yaml"}, []string{"--providers-config", "nope.yaml"}},
		"bad config":          {[]string{"--insecure", "--providers-config", bad}, []string{bad, "providers[0].gcp: is missing"}},
		"no adapter":          {[]string{"--insecure", "--providers-config", cloudy}, []string{"--cloud-socket is missing", "gcp-eu", "--socket of cloud"}},
		"long socket":         {[]string{"--insecure", "--providers-config", cloudy, "--cloud-socket", strings.Repeat("s", 108)}, []string{"--cloud-socket has 108 characters"}},
		"bad limit":           {[]string{"--insecure", "--providers-config", providersFile, "--max-replacing", "0"}, []string{"--max-replacing", "1% to 100%"}},
		"bad polls":           {[]string{"--insecure", "--providers-config", providersFile, "--drift-poll", "0s", "--deletion-poll", "-1s", "--budget-poll", "0s", "--provisioning-poll", "1ms", "--provisioning-deadline", "0", "--quota-retry", "1ms"}, []string{"--quota-retry 1ms", "--drift-poll 0s", "--deletion-poll -1s", "--budget-poll 0s", "--provisioning-poll 1ms", "--provisioning-deadline 0s"}},
		"bad addresses":       {[]string{"--insecure", "--providers-config", providersFile, "--listen", "8443", "--ops-addr", "x"}, []string{`--listen "8443"`, `--ops-addr "x"`}},
		"no such kubeconfig":  {[]string{"--insecure", "--providers-config", providersFile, "--kubeconfig", "nope"}, []string{"--kubeconfig nope"}},
		"bad log level":       {[]string{"--insecure", "--providers-config", providersFile, "--log-level", "loud"}, []string{"--log-level"}},
		"unknown flag":        {[]string{"--inscure"}, []string{"inscure", "--help"}},
		"stray argument":      {[]string{"serve"}, []string{"serve"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(context.Background(), tt.args, io.Discard)
			require.Error(t, err)
			for _, want := range tt.want {
				assert.Contains(t, err.Error(), want)
			}
		})
	}
}

func TestAddressInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	args := []string{"--insecure", "--providers-config", providersFile, "--ops-addr", "127.0.0.1:0", "--listen", ln.Addr().String()}
	require.ErrorContains(t, run(context.Background(), args, io.Discard), "--listen "+ln.Addr().String())
	args = []string{"--insecure", "--providers-config", providersFile, "--listen", "127.0.0.1:0", "--ops-addr", ln.Addr().String()}
	require.ErrorContains(t, run(context.Background(), args, io.Discard), "--ops-addr "+ln.Addr().String())
}

func TestEnvironment(t *testing.T) {
	t.Setenv("PX_INSECURE", "true")
	t.Setenv("PX_PROVIDERS_CONFIG", providersFile)
	t.Setenv("PX_MAX_REPLACING", "3")
	t.Setenv("PX_DRIFT_POLL", "90s")
	o, err := parseOptions([]string{"--max-replacing", "50%"}, io.Discard)
	require.NoError(t, err)
	assert.True(t, o.insecure)
	assert.Equal(t, "50%", o.maxReplacing, "the flag wins")
	assert.Equal(t, 90*time.Second, o.timing.DriftPoll)
}

func TestHelp(t *testing.T) {
	var out programtest.Output
	require.ErrorIs(t, run(context.Background(), []string{"--help"}, &out), flags.ErrHelp)
	for _, flag := range []string{
		"listen", "tls-cert", "tls-key", "token-file", "insecure", "providers-config", "cloud-init-secrets", "events", "max-replacing",
		"provisioning-deadline", "provisioning-poll", "drift-poll", "deletion-poll", "budget-poll", "quota-retry", "cloud-socket", "ops-addr", "kubeconfig", "log-level", "log-format",
	} {
		assert.Contains(t, out.String(), fmt.Sprintf("--%s ", flag))
		assert.Contains(t, out.String(), flags.EnvName(flag))
	}
}
