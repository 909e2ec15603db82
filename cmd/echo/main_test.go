package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/echo"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keyPair writes a certificate for 127.0.0.1 and its key.
func keyPair(t *testing.T, ca *probetest.CA) (cert, key string) {
	t.Helper()
	pair := ca.Certificate(t, "127.0.0.1", time.Now().Add(time.Hour))
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	return cert, key
}

func TestHelpListsEveryFlag(t *testing.T) {
	var out bytes.Buffer
	require.ErrorIs(t, run(t.Context(), []string{"--help"}, &out), flags.ErrHelp)
	for _, name := range []string{"listen", "tls-listen", "tls-cert", "tls-key", "ops-addr", "log-level", "log-format"} {
		assert.Contains(t, out.String(), "--"+name+" ")
	}
}

func TestAllInvalidFlagsAreReportedAtOnce(t *testing.T) {
	_, err := parseOptions([]string{"--listen", "8080", "--tls-listen", "8443", "--ops-addr", "x", "--log-format", "xml"}, io.Discard)
	require.Error(t, err)
	for _, want := range []string{`--listen "8080"`, `--tls-listen "8443"`, `--ops-addr "x"`, "--tls-listen needs --tls-cert and --tls-key", "xml"} {
		assert.ErrorContains(t, err, want)
	}
	for want, args := range map[string][]string{
		"there is nothing to serve": {"--listen", ""},
		"for --tls-listen":          {"--tls-cert", "x"},
		"no such file":              {"--tls-listen", ":0", "--tls-cert", "/no/such/file", "--tls-key", "/no/such/file"},
	} {
		_, err := parseOptions(args, io.Discard)
		assert.ErrorContains(t, err, want)
	}
}

func TestPortInUseEndsTheProcess(t *testing.T) {
	taken := probetest.Serve(t, probetest.Hang)
	err := run(t.Context(), []string{"--listen", taken.Addr, "--ops-addr", "127.0.0.1:0"}, io.Discard)
	assert.ErrorContains(t, err, "--listen "+taken.Addr)
}

func TestServesHTTPAndHTTPS(t *testing.T) {
	ca := probetest.NewCA(t)
	cert, key := keyPair(t, ca)
	for scheme, args := range map[string][]string{
		"http":  {"--listen", "127.0.0.1:0"},
		"https": {"--listen", "", "--tls-listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key},
	} {
		t.Run(scheme, func(t *testing.T) {
			p := programtest.Start(t, run, append(args, "--ops-addr", "127.0.0.1:0")...)
			p.AwaitReady(t)
			url, err := echo.WithNonce(scheme+"://"+p.Address(t, "echo endpoint listening")+"/any", "n1")
			require.NoError(t, err)
			client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}}}
			resp, err := client.Get(url)
			require.NoError(t, err)
			defer resp.Body.Close()
			assert.True(t, resp.Close, "one answer per connection")
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			seen, err := echo.Read(body, "n1")
			require.NoError(t, err, string(body))
			assert.Equal(t, "127.0.0.1", seen.Exit.String())
			assert.True(t, json.Valid(body) && strings.HasSuffix(string(body), "\n"))
		})
	}
}
