package connectproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// allowLoopback lets clients on this host reach every port of it.
func allowLoopback() Dialer {
	return Dialer{Access: Access{Clients: prefixes("127.0.0.0/8"), Destinations: prefixes("127.0.0.0/8"), Ports: allPorts()}}
}

// allowAll is an open proxy.
func allowAll() Dialer {
	d := allowLoopback()
	d.Destinations = prefixes("0.0.0.0/0", "::/0")
	return d
}

func allPorts() []uint16 {
	ports := make([]uint16, 0, 1<<16)
	for p := 1; p < 1<<16; p++ {
		ports = append(ports, uint16(p))
	}
	return ports
}

// startProxy runs a proxy until the test ends.
func startProxy(t *testing.T, d Dialer) string {
	t.Helper()
	return startIdleProxy(t, d, 0)
}

// startIdleProxy runs a proxy with that idle timeout until the test ends.
func startIdleProxy(t *testing.T, d Dialer, idle time.Duration) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	address, done := serve(t, ctx, &Proxy{Open: d.Open, IdleTimeout: idle, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return address
}

func serve(t *testing.T, ctx context.Context, p *Proxy) (string, <-chan error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx, ln) }()
	return ln.Addr().String(), done
}

// through returns a client that uses the proxy and trusts the server.
func through(t *testing.T, proxy string, trusted *httptest.Server) *http.Client {
	t.Helper()
	tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: proxy})}
	if trusted != nil && trusted.Certificate() != nil {
		roots := x509.NewCertPool()
		roots.AddCert(trusted.Certificate())
		tr.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

func get(t *testing.T, c *http.Client, target string) (*http.Response, string) {
	t.Helper()
	resp, err := c.Get(target)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(body)
}

// rawServer accepts one TCP connection and hands it to handle.
func rawServer(t *testing.T, handle func(*net.TCPConn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		handle(conn.(*net.TCPConn))
	})
	t.Cleanup(func() {
		require.NoError(t, ln.Close())
		wg.Wait()
	})
	return ln.Addr().String()
}

// ask writes request to the proxy and reads the header of the response.
func ask(t *testing.T, proxy, request string) (*net.TCPConn, *bufio.Reader, *http.Response) {
	t.Helper()
	conn, err := net.Dial("tcp", proxy)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(conn, request)
	require.NoError(t, err)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	require.NoError(t, err)
	return conn.(*net.TCPConn), r, resp
}

// tunnelTo opens a tunnel through the proxy.
func tunnelTo(t *testing.T, proxy, target string) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	conn, r, resp := ask(t, proxy, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	return conn, r
}

// fakeResolver returns a list, one element per lookup, the last one for all later lookups.
type fakeResolver struct {
	mu      sync.Mutex
	answers [][]netip.Addr
	err     error
	calls   int
}

func (f *fakeResolver) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.err != nil || len(f.answers) == 0 {
		return nil, f.err
	}
	return f.answers[min(f.calls, len(f.answers))-1], nil
}

func (f *fakeResolver) lookups() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

func addrs(texts ...string) []netip.Addr {
	out := make([]netip.Addr, len(texts))
	for i, s := range texts {
		out[i] = netip.MustParseAddr(s)
	}
	return out
}
