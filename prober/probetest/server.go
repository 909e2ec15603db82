package probetest

import (
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Server accepts connections on loopback and hands each to a handler. At the
// end of the test it closes them all and waits for the handlers.
type Server struct {
	// Addr is host:port.
	Addr string

	handle func(net.Conn)
	ln     net.Listener
	wg     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // nil after close
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
	s := &Server{Addr: ln.Addr().String(), handle: handle, ln: ln, conns: map[net.Conn]bool{}}
	s.wg.Go(s.accept)
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
func (s *Server) Close() {
	_ = s.ln.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *Server) accept() {
	for {
		c, err := s.ln.Accept()
		if err != nil {
			return
		}
		if !s.add(c) {
			_ = c.Close()
			return
		}
		s.wg.Go(func() {
			defer s.remove(c)
			s.handle(c)
		})
	}
}

func (s *Server) add(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		return false
	}
	s.conns[c] = true
	return true
}

func (s *Server) remove(c net.Conn) {
	_ = c.Close()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}
