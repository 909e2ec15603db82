package probe

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

// zone has the addresses of each name, without the last dot. Other names get NXDOMAIN.
type zone map[string][]string

// nameServer is a name server on loopback.
type nameServer struct {
	zone           zone
	broken, silent bool
	conn           net.PacketConn

	mu    sync.Mutex
	asked []net.Conn // of the resolver, which leaves them open after a timeout
	ended bool
}

// serveNames starts a name server for the zone.
func serveNames(tb testing.TB, zone zone) *nameServer {
	tb.Helper()
	return startNames(tb, &nameServer{zone: zone})
}

// serveNoNames starts a name server that answers every query with SERVFAIL, or not at
// all.
func serveNoNames(tb testing.TB, silent bool) *nameServer {
	tb.Helper()
	return startNames(tb, &nameServer{broken: true, silent: silent})
}

func startNames(tb testing.TB, s *nameServer) *nameServer {
	tb.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(tb, err)
	s.conn = conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.serve()
	}()
	tb.Cleanup(func() {
		s.end()
		<-done
	})
	return s
}

func (s *nameServer) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, c := range s.asked {
		_ = c.Close()
	}
	_ = s.conn.Close()
}

func (s *nameServer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, net.ErrClosed
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "udp", s.conn.LocalAddr().String())
	if err == nil {
		s.asked = append(s.asked, c)
	}
	return c, err
}

// resolver queries only this server.
func (s *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: s.dial}
}

func (s *nameServer) serve() {
	question := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(question)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(question[:n]) != nil || len(m.Questions) != 1 || s.silent {
			continue
		}
		if packed, err := s.answer(m).Pack(); err == nil {
			_, _ = s.conn.WriteTo(packed, from)
		}
	}
}

func (s *nameServer) answer(m dnsmessage.Message) *dnsmessage.Message {
	q := m.Questions[0]
	out := &dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
	addresses, known := s.zone[strings.TrimSuffix(q.Name.String(), ".")]
	switch {
	case s.broken:
		out.RCode = dnsmessage.RCodeServerFailure
	case !known:
		out.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addresses {
		if body := record(net.ParseIP(a), q.Type); body != nil && !s.broken {
			header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: uint32(time.Minute / time.Second)}
			out.Answers = append(out.Answers, dnsmessage.Resource{Header: header, Body: body})
		}
	}
	return out
}

// record returns the resource record, nil when the address has the other family.
func record(ip net.IP, kind dnsmessage.Type) dnsmessage.ResourceBody {
	v4 := ip.To4()
	switch {
	case v4 != nil && kind == dnsmessage.TypeA:
		return &dnsmessage.AResource{A: [4]byte(v4)}
	case v4 == nil && kind == dnsmessage.TypeAAAA:
		return &dnsmessage.AAAAResource{AAAA: [16]byte(ip.To16())}
	}
	return nil
}
