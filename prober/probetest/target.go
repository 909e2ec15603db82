package probetest

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/echo"
)

// ServeTLS starts a target that speaks TLS with this certificate and hands each
// connection, its request read, to the handler.
func ServeTLS(tb testing.TB, cert tls.Certificate, handle func(net.Conn, *http.Request)) *Server {
	tb.Helper()
	return ServeTLSOn(tb, "127.0.0.1:0", cert, handle)
}

// ServeTLSOn is ServeTLS at an address, such as one that was used before.
func ServeTLSOn(tb testing.TB, addr string, cert tls.Certificate, handle func(net.Conn, *http.Request)) *Server {
	tb.Helper()
	config := &tls.Config{Certificates: []tls.Certificate{cert}}
	ln, err := net.Listen("tcp", addr)
	require.NoError(tb, err)
	return ServeOn(tb, ln, func(raw net.Conn) {
		c := tls.Server(raw, config)
		defer c.Close()
		withRequest(handle)(c)
	})
}

// ServeHTTP starts a target without TLS.
func ServeHTTP(tb testing.TB, handle func(net.Conn, *http.Request)) *Server {
	tb.Helper()
	return Serve(tb, withRequest(handle))
}

// Status is a target's handler that answers with a status and no body.
func Status(status int) func(net.Conn, *http.Request) {
	return func(c net.Conn, _ *http.Request) { answer(c, status) }
}

// Text is a target's handler that answers with these bytes.
func Text(text string) func(net.Conn, *http.Request) {
	return func(c net.Conn, _ *http.Request) { _, _ = io.WriteString(c, text) }
}

// TextAndHang is Text, after which the connection stays open and silent.
func TextAndHang(text string) func(net.Conn, *http.Request) {
	return func(c net.Conn, r *http.Request) {
		Text(text)(c, r)
		Hang(c)
	}
}

// EchoConn serves the echo endpoint on one connection.
func EchoConn(c net.Conn) { withRequest(Echo)(c) }

// Echo is a target's handler that answers as the echo endpoint does.
func Echo(c net.Conn, req *http.Request) {
	req.RemoteAddr = c.RemoteAddr().String()
	rec := httptest.NewRecorder()
	echo.Handler().ServeHTTP(rec, req)
	response := rec.Result()
	response.ProtoMajor, response.ProtoMinor, response.Close = 1, 1, true
	response.ContentLength = int64(rec.Body.Len())
	_ = response.Write(c)
}
