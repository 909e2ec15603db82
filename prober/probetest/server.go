package probetest

import (
	"context"
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/connectproxy"
)

// Server accepts connections on loopback and hands each to a handler. At the
// end of the test it closes them all and waits for the handlers.
type Server struct {
	Addr string // host:port
	stop func()
}

// Serve starts a Server. The handler's connection is closed when it returns.
func Serve(tb testing.TB, handle func(net.Conn)) *Server {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	return ServeOn(tb, ln, handle)
}

// ServeOn is Serve on an existing listener.
func ServeOn(tb testing.TB, ln net.Listener, handle func(net.Conn)) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = connectproxy.Accept(ctx, ln, func(ctx context.Context, c net.Conn) {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			handle(c)
		})
	}()
	s := &Server{Addr: ln.Addr().String(), stop: func() { cancel(); <-done }}
	tb.Cleanup(s.Close)
	return s
}

// Host is the address without the port.
func (s *Server) Host() string {
	host, _, _ := net.SplitHostPort(s.Addr) // from a listener: well-formed
	return host
}

// Port is the port alone.
func (s *Server) Port() int32 {
	_, port, _ := net.SplitHostPort(s.Addr)
	n, _ := strconv.ParseInt(port, 10, 32)
	return int32(n)
}

// Close closes the listener and every connection. It can be called twice.
func (s *Server) Close() { s.stop() }
