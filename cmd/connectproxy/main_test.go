package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	require.ErrorIs(t, run(t.Context(), []string{"--help"}, &out), flags.ErrHelp)
	for _, want := range []string{"--deny-destination", "--allow-client", "PX_ALLOW_PORT", "denies every"} {
		assert.Contains(t, out.String(), want)
	}
}

func TestRefusedOptions(t *testing.T) {
	listen := []string{"--listen", "127.0.0.1:3128"}
	all := append(listen, "--allow-client", "127.0.0.0/8", "--allow-destination", "127.0.0.0/8", "--allow-port", "443")
	tests := map[string]struct {
		args []string
		says []string
	}{
		"nothing":         {nil, []string{"--listen is missing", "--allow-client", "--allow-destination", "--allow-port"}},
		"only listen":     {listen, []string{"--allow-client", "--allow-destination", "--allow-port"}},
		"bad closed":      {append(all, "--deny-destination", "10.0.0.1"), []string{"--deny-destination \"10.0.0.1\""}},
		"bad listen":      {append(all, "--listen", "localhost"), []string{"--listen \"localhost\""}},
		"bad client":      {append(all, "--allow-client", "10.0.0.0/99"), []string{"--allow-client \"10.0.0.0/99\""}},
		"bad destination": {append(all, "--allow-destination", "::ffff:10.0.0.0/104"), []string{"--allow-destination"}},
		"negative port":   {append(all, "--allow-port", "-1"), []string{"--allow-port \"-1\""}},
		"two bad ones":    {append(all, "--allow-port", "x", "--allow-client", "y"), []string{"--allow-port \"x\"", "--allow-client \"y\""}},
		"unknown flag":    {[]string{"--lisen", "x"}, []string{"lisen", "--help"}},
		"log level, too":  {append(listen, "--log-level", "loud"), []string{"--allow-port is missing", "--log-level"}},
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

func TestProxyFromFlags(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	target, err := url.Parse(srv.URL)
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		deny []string
		want int
	}{
		"allowed": {nil, http.StatusNotFound},
		"closed":  {[]string{"--deny-destination", "127.0.0.0/30"}, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			addr := controlplanetest.FreeAddr(t)
			args := append([]string{"--listen", addr, "--allow-client", "127.0.0.0/8", "--allow-destination", "127.0.0.0/8", "--allow-port", "1," + target.Port()}, tt.deny...)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- run(ctx, args, io.Discard) }()
			tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: addr})}
			defer tr.CloseIdleConnections()
			client := &http.Client{Transport: tr}
			require.Eventually(t, func() bool {
				resp, err := client.Get(srv.URL)
				if err != nil {
					return false
				}
				_ = resp.Body.Close()
				return resp.StatusCode == tt.want
			}, 10*time.Second, 10*time.Millisecond)
			cancel()
			require.NoError(t, <-done)
		})
	}
}
