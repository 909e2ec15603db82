package external

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/target"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func site(t *testing.T) *target.Target {
	t.Helper()
	s, err := target.New("127.0.0.1", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ran)
	})
	return s
}

func host(s *target.Target) string { return strings.TrimPrefix(s.URL, "https://") }

// crawl fetches the real site through the proxy.
func crawl(t *testing.T, p *Proxy, pool *x509.CertPool, page string) error {
	t.Helper()
	tr := &http.Transport{
		Proxy:             http.ProxyURL(&url.URL{Scheme: "http", Host: p.Addr()}),
		TLSClientConfig:   &tls.Config{RootCAs: pool},
		DisableKeepAlives: true,
	}
	client := &http.Client{Timeout: 20 * time.Second, Transport: tr}
	if strings.HasSuffix(t.Name(), "/"+string(Hang)) {
		client.Timeout = 500 * time.Millisecond
	}
	resp, err := client.Get(page)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	assert.Equal(t, http.StatusNoContent, resp.StatusCode)
	return nil
}

func TestModes(t *testing.T) {
	real, impostor := site(t), site(t)
	// On an address that no other process has: its port stays free while it is closed.
	p, err := Open(controlplanetest.Addr(), Sites{Real: host(real), Impostor: host(impostor)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	addr := p.Addr()
	for _, tt := range []struct {
		mode Mode
		want string // part of the error, "" for none
	}{
		{Serve, ""},
		{Refuse, "connection refused"},
		{Refuse, "connection refused"},
		{Hang, "Client.Timeout exceeded"},
		{Junk, "tls"},
		{Page, "EOF"},
		{Elsewhere, "certificate"},
		{Forbid, "Forbidden"},
		{Serve, ""},
	} {
		t.Run(string(tt.mode), func(t *testing.T) {
			require.NoError(t, p.Set(tt.mode))
			err := crawl(t, p, real.Pool(), real.URL+"/generate_204")
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
	assert.Equal(t, addr, p.Addr())
}

func TestOtherTargetIsForbidden(t *testing.T) {
	real, other := site(t), site(t)
	p, err := Open("127.0.0.1", Sites{Real: host(real)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	require.ErrorContains(t, crawl(t, p, other.Pool(), other.URL+"/generate_204"), "Forbidden")
}

func TestRefuseEndsTunnels(t *testing.T) {
	real := site(t)
	p, err := Open("127.0.0.1", Sites{Real: host(real)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "CONNECT "+host(real)+" HTTP/1.1\r\nHost: "+host(real)+"\r\n\r\n")
	require.NoError(t, err)
	buf := make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n"))
	_, err = conn.Read(buf)
	require.NoError(t, err)
	assert.Contains(t, string(buf), "200")
	require.NoError(t, p.Set(Refuse))
	_, err = conn.Read(buf)
	assert.Error(t, err)
}
