package probe

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

// BenchmarkProbe and BenchmarkFloor make the same requests through the same proxy;
// what the first takes more is what the prober adds to a bare loop.
func BenchmarkProbe(b *testing.B) {
	ca := probetest.NewCA(b)
	proxy := probetest.StartProxy(b, probetest.Forward(probetest.To(goodTarget(b, ca).Addr)))
	prober, req := New(ca.Pool()), request(proxy, patient)
	b.ReportAllocs()
	for b.Loop() {
		if r := prober.Probe(b.Context(), req); r.Outcome != Success {
			b.Fatal(r.Message)
		}
	}
}

func BenchmarkFloor(b *testing.B) {
	ca := probetest.NewCA(b)
	proxy := probetest.StartProxy(b, probetest.Forward(probetest.To(goodTarget(b, ca).Addr)))
	config := &tls.Config{ServerName: targetName, RootCAs: ca.Pool()}
	b.ReportAllocs()
	for b.Loop() {
		bare(b, proxy.Addr, config)
	}
}

func bare(b *testing.B, addr string, config *tls.Config) {
	b.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(b, err)
	defer c.Close()
	fmt.Fprintf(c, "CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n", targetName, targetName)
	_, err = http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
	require.NoError(b, err)
	s := tls.Client(c, config)
	fmt.Fprintf(s, "GET /generate_204 HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", targetName)
	resp, err := http.ReadResponse(bufio.NewReader(s), nil)
	require.NoError(b, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(b, err)
}
