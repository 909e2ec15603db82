package target

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/echo"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) *Target {
	t.Helper()
	site, err := New("127.0.0.1", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- site.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ran)
	})
	return site
}

func get(t *testing.T, site *Target, tlsConfig *tls.Config, path string, header http.Header) (*http.Response, error) {
	t.Helper()
	client := &http.Client{
		Timeout:   20 * time.Second,
		Transport: &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true},
	}
	req, err := http.NewRequest(http.MethodGet, site.URL+path, nil)
	require.NoError(t, err)
	req.Header = header
	return client.Do(req)
}

func TestTargetReturnsWhatItSaw(t *testing.T) {
	site := start(t)
	resp, err := get(t, site, &tls.Config{RootCAs: site.Pool()}, "/", http.Header{"Via": {"1.1 leaky"}})
	require.NoError(t, err)
	defer resp.Body.Close()
	var got Seen
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&got))
	assert.Equal(t, "127.0.0.1", got.Peer)
	assert.Equal(t, http.MethodGet, got.Method)
	assert.Equal(t, map[string]string{"Via": "1.1 leaky"}, got.Forwarded)
}

func TestTargetServesProbes(t *testing.T) {
	site := start(t)
	resp, err := get(t, site, &tls.Config{RootCAs: site.Pool()}, "/generate_204", nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusNoContent, resp.StatusCode)
}

func TestTargetIsAnEchoEndpoint(t *testing.T) {
	site := start(t)
	resp, err := get(t, site, &tls.Config{RootCAs: site.Pool()}, "/echo?nonce=n1", nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	seen, err := echo.Read(body, "n1")
	require.NoError(t, err)
	assert.Equal(t, "127.0.0.1", seen.Exit.String())
}

func TestTargetNeedsItsCertificate(t *testing.T) {
	site := start(t)
	resp, err := get(t, site, nil, "/", nil)
	if err == nil {
		resp.Body.Close()
	}
	require.Error(t, err)
}

func TestNewRejectsForeignAddress(t *testing.T) {
	_, err := New("192.0.2.1", slog.New(slog.DiscardHandler))
	assert.ErrorContains(t, err, "probe target: listen tcp 192.0.2.1:0")
}

func TestAgainKeepsAddressAndCertificate(t *testing.T) {
	// On an address that no other process has: its port stays free meanwhile.
	site, err := New(controlplanetest.Addr(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- site.Run(ctx) }()
	_, err = site.Again()
	require.Error(t, err, "it still listens")
	cancel()
	require.NoError(t, <-ran)

	again, err := site.Again()
	require.NoError(t, err)
	ctx, cancel = context.WithCancel(context.Background())
	go func() { ran <- again.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ran)
	})
	assert.Equal(t, site.URL, again.URL)
	resp, err := get(t, again, &tls.Config{RootCAs: site.Pool()}, "/generate_204", nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusNoContent, resp.StatusCode)
}
