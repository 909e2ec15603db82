package probetest

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/connectproxy"
)

// Behaviour is what a proxy does with one connection.
type Behaviour func(c net.Conn)

// Proxy is a Server whose behaviour can be changed while it runs.
type Proxy struct {
	*Server

	mu     sync.Mutex
	behave []Behaviour // of one connection after the other, the last one for the rest
	seen   int
}

// StartProxy starts a proxy.
func StartProxy(tb testing.TB, b Behaviour) *Proxy {
	tb.Helper()
	p := &Proxy{behave: []Behaviour{b}}
	p.Server = Serve(tb, func(c net.Conn) { p.next()(c) })
	return p
}

// Set changes what the proxy does with connections from now on.
func (p *Proxy) Set(b Behaviour) { p.Alternate(b) }

// Alternate changes what the proxy does with the connections from now on, each
// with one, the last one with the rest.
func (p *Proxy) Alternate(each ...Behaviour) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.behave = each
}

// Seen is how many connections came.
func (p *Proxy) Seen() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

func (p *Proxy) next() Behaviour {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen++
	b := p.behave[0]
	if len(p.behave) > 1 {
		p.behave = p.behave[1:]
	}
	return b
}

// Route says where the proxy connects for the host:port that it is asked for.
type Route func(authority string) (addr string, ok bool)

// To routes every name to addr.
func To(addr string) Route { return func(string) (string, bool) { return addr, true } }

// Check looks at a request to the proxy and returns the status of a refusal, 0
// for none.
type Check func(*http.Request) int

// RequireBasic asks for a username and password by 407.
func RequireBasic(username, password string) Check {
	return func(r *http.Request) int {
		probe := http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
		if u, p, ok := probe.BasicAuth(); ok && u == username && p == password {
			return 0
		}
		return http.StatusProxyAuthRequired
	}
}

// Forward is the behaviour of a proxy that works: it opens tunnels for CONNECT and fetches absolute URLs, wherever the
// route leads.
func Forward(route Route, checks ...Check) Behaviour {
	open := func(ctx context.Context, r connectproxy.Request) (net.Conn, error) {
		for _, check := range checks {
			if status := check(r.Request); status != 0 {
				return nil, &connectproxy.Refusal{Status: status}
			}
		}
		if addr, ok := route(r.Host); ok {
			if up, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr); err == nil {
				return up, nil
			}
		}
		return nil, &connectproxy.Refusal{Status: http.StatusServiceUnavailable}
	}
	return func(c net.Conn) { (&connectproxy.Proxy{Open: open}).ServeConn(context.Background(), c) }
}

// OverTLS is a proxy that is itself spoken to in TLS.
func OverTLS(cert tls.Certificate, b Behaviour) Behaviour {
	config := &tls.Config{Certificates: []tls.Certificate{cert}}
	return func(raw net.Conn) {
		c := tls.Server(raw, config)
		if c.Handshake() == nil {
			b(c)
		}
		_ = c.Close()
	}
}

func answer(c net.Conn, status int) {
	r := http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Close: true, Body: http.NoBody}
	_ = r.Write(c)
}

// Answer answers every request with a status.
func Answer(status int) Behaviour {
	return afterRequest(func(c net.Conn) { answer(c, status) })
}

// Say answers every request with these bytes and closes.
func Say(text string) Behaviour {
	return afterRequest(func(c net.Conn) { _, _ = io.WriteString(c, text) })
}

// SayAndHang answers every request with these bytes and then does nothing.
func SayAndHang(text string) Behaviour {
	return afterRequest(func(c net.Conn) {
		_, _ = io.WriteString(c, text)
		Hang(c)
	})
}

// Drip answers every request with these bytes, over and over, one at a time.
func Drip(text string, every time.Duration) Behaviour {
	return afterRequest(func(c net.Conn) {
		for i := 0; ; i++ {
			time.Sleep(every)
			if _, err := c.Write([]byte{text[i%len(text)]}); err != nil {
				return
			}
		}
	})
}

// Hang reads and never answers, until the other side ends.
func Hang(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// Reset reads the request and answers with a TCP reset.
func Reset(c net.Conn) {
	afterRequest(func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) })(c)
}

// CloseAtOnce closes without reading.
func CloseAtOnce(net.Conn) {}

// afterRequest reads the headers of one request first.
func afterRequest(then func(net.Conn)) Behaviour {
	return withRequest(func(c net.Conn, _ *http.Request) { then(c) })
}

func withRequest(then func(net.Conn, *http.Request)) Behaviour {
	return func(c net.Conn) {
		if req, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			then(c, req)
		}
	}
}
