package connectproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func echoHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Peer", host)
		fmt.Fprintf(w, "%s %s %s|%v|%s", r.Method, r.Host, r.URL, r.Header, body)
	})
}

func TestConnectCarriesTLSFromTheOutgoingAddress(t *testing.T) {
	srv := httptest.NewTLSServer(echoHandler())
	defer srv.Close()
	d := allowLoopback()
	d.From = netip.MustParseAddr("127.0.0.77")
	proxy := startProxy(t, d)

	resp, _ := get(t, through(t, proxy, srv), srv.URL)

	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "127.0.0.77", resp.Header.Get("X-Peer"))
}

func TestPlainRequestDoesNotIdentifyTheClient(t *testing.T) {
	srv := httptest.NewServer(echoHandler())
	defer srv.Close()
	d := allowLoopback()
	d.From = netip.MustParseAddr("127.0.0.77")
	proxy := startProxy(t, d)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/a?b=c", strings.NewReader("body"))
	require.NoError(t, err)
	for _, h := range []string{"X-Forwarded-For", "Forwarded", "Proxy-Authorization", "Proxy-Connection", "Connection"} {
		req.Header.Set(h, "CANARY")
	}
	req.Header.Set("X-Kept", "kept")
	client := through(t, proxy, nil)
	for range 2 { // each on a connection of its own
		req.Body = io.NopCloser(strings.NewReader("body"))
		resp, err := client.Do(req)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())

		assert.Equal(t, "127.0.0.77", resp.Header.Get("X-Peer"))
		assert.Contains(t, string(body), "POST "+strings.TrimPrefix(srv.URL, "http://")+" /a?b=c|")
		assert.Contains(t, string(body), "|body")
		assert.Contains(t, string(body), "X-Kept:[kept]")
		assert.NotContains(t, string(body), "CANARY")
	}
}

func TestRefusalHasStatusAndProxyStatus(t *testing.T) {
	d := allowAll()
	d.Closed = prefixes("10.0.0.0/8")
	d.Ports = slices.DeleteFunc(d.Ports, func(p uint16) bool { return p == 25 })
	proxy := startProxy(t, d)
	tests := map[string]struct {
		request string
		status  int
		kind    string
	}{
		"denied port":           {"CONNECT 192.0.2.1:25 HTTP/1.1\r\nHost: x\r\n\r\n", 403, "http_request_denied"},
		"denied address":        {"CONNECT 10.1.2.3:443 HTTP/1.1\r\nHost: x\r\n\r\n", 403, "destination_ip_prohibited"},
		"denied mapped address": {"CONNECT [::ffff:10.1.2.3]:443 HTTP/1.1\r\nHost: x\r\n\r\n", 403, "destination_ip_prohibited"},
		"this host":             {"CONNECT 0.0.0.0:443 HTTP/1.1\r\nHost: x\r\n\r\n", 403, "destination_ip_prohibited"},
		"this host in IPv6":     {"CONNECT [::]:443 HTTP/1.1\r\nHost: x\r\n\r\n", 403, "destination_ip_prohibited"},
		"multicast":             {"CONNECT 224.0.0.1:443 HTTP/1.1\r\nHost: x\r\n\r\n", 403, "destination_ip_prohibited"},
		"denied plain":          {"GET http://10.1.2.3/ HTTP/1.1\r\nHost: x\r\n\r\n", 403, "destination_ip_prohibited"},
		"no port":               {"CONNECT example.com HTTP/1.1\r\nHost: x\r\n\r\n", 400, "http_request_error"},
		"port zero":             {"CONNECT 192.0.2.1:0 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "http_request_error"},
		"path":                  {"CONNECT 192.0.2.1:443/x HTTP/1.1\r\nHost: x\r\n\r\n", 400, "http_request_error"},
		"user":                  {"CONNECT u@192.0.2.1:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "http_request_error"},
		"not a proxy request":   {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 400, "http_request_error"},
		"https in the clear":    {"GET https://192.0.2.1/ HTTP/1.1\r\nHost: x\r\n\r\n", 400, "http_request_error"},
		"closed port":           {"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n", 503, "connection_refused"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, resp := ask(t, proxy, tt.request)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, tt.status, resp.StatusCode, string(body))
			assert.Equal(t, "connectproxy; error="+tt.kind, resp.Header.Get("Proxy-Status"))
			assert.NotEmpty(t, body)
		})
	}
}

func TestDeniedClientCausesNoNameLookup(t *testing.T) {
	names := &fakeResolver{answers: [][]netip.Addr{addrs("127.0.0.1")}}
	d := allowAll()
	d.Clients, d.Resolver = prefixes("10.0.0.0/8"), names
	proxy := startProxy(t, d)

	_, _, resp := ask(t, proxy, "CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")

	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
	assert.Zero(t, names.lookups())
}

func TestEveryAddressOfANameMustBeAllowed(t *testing.T) {
	for _, answer := range [][]netip.Addr{addrs("192.0.2.1", "127.0.0.1"), addrs("127.0.0.1", "192.0.2.1"), addrs("::ffff:127.0.0.1"), addrs("0.0.0.0")} {
		names := &fakeResolver{answers: [][]netip.Addr{answer}}
		d := allowAll()
		d.Closed, d.Resolver = prefixes("127.0.0.0/8"), names
		proxy := startProxy(t, d)

		_, _, resp := ask(t, proxy, "CONNECT rebind.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")

		assert.Equal(t, http.StatusForbidden, resp.StatusCode, answer)
	}
}

// The second lookup would return a denied address; there must be none.
func TestDialUsesTheCheckedAddress(t *testing.T) {
	srv := httptest.NewServer(echoHandler())
	defer srv.Close()
	port := netip.MustParseAddrPort(strings.TrimPrefix(srv.URL, "http://")).Port()
	names := &fakeResolver{answers: [][]netip.Addr{addrs("127.0.0.1"), addrs("169.254.169.254")}}
	d := allowLoopback()
	d.Resolver = names
	proxy := startProxy(t, d)

	resp, body := get(t, through(t, proxy, nil), fmt.Sprintf("http://rebind.example:%d/", port))

	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Contains(t, body, "GET rebind.example")
	assert.Equal(t, 1, names.lookups())
}

func TestLookupFailures(t *testing.T) {
	for kind, names := range map[string]*fakeResolver{
		"dns_error":   {err: errors.New("no such host")},
		"dns_timeout": {err: fmt.Errorf("waiting: %w", context.DeadlineExceeded)},
	} {
		d := allowAll()
		d.Resolver = names
		proxy := startProxy(t, d)
		_, _, resp := ask(t, proxy, "CONNECT nowhere.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
		assert.Equal(t, "connectproxy; error="+kind, resp.Header.Get("Proxy-Status"))
		assert.GreaterOrEqual(t, resp.StatusCode, 503)
	}
	d := allowAll()
	d.Resolver = &fakeResolver{}
	proxy := startProxy(t, d)
	_, _, resp := ask(t, proxy, "CONNECT empty.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, "a name without addresses")
}

func TestDialOfTheOtherIPVersionThanTheOutgoingAddressFails(t *testing.T) {
	d := allowAll()
	d.From = netip.MustParseAddr("127.0.0.77")
	proxy := startProxy(t, d)
	_, _, resp := ask(t, proxy, "CONNECT [::1]:443 HTTP/1.1\r\nHost: x\r\n\r\n")
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Contains(t, string(body), "other IP version")
}

func TestUpstreamThatClosesWithoutResponseIsA502(t *testing.T) {
	target := rawServer(t, func(c *net.TCPConn) { _, _ = c.Read(make([]byte, 1)) })
	proxy := startProxy(t, allowLoopback())
	resp, body := get(t, through(t, proxy, nil), "http://"+target+"/")
	assert.Equal(t, http.StatusBadGateway, resp.StatusCode)
	assert.Contains(t, body, target)
}
