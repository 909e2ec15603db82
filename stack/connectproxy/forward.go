package connectproxy

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"
)

// forward serves a plain request in absolute form on a connection of its own,
// so that each request is checked.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request) error {
	f, err := facts(r)
	if err != nil {
		return err
	}
	if r.URL.Scheme != "http" || r.URL.Host == "" || r.URL.User != nil {
		return badRequest("this is a proxy: send CONNECT host:port, or a request for http://host/path")
	}
	target := r.URL.Host
	if r.URL.Port() == "" {
		target = net.JoinHostPort(r.URL.Hostname(), "80")
	}
	upstream, err := p.dial(r.Context(), f, target)
	if err != nil {
		return err
	}
	conn := &idleConn{Conn: upstream, client: http.NewResponseController(w), idle: p.idleTimeout}
	defer conn.release()
	return p.exchange(w, r, conn, target)
}

// exchange sends the request over conn and the answer back. ReverseProxy drops
// the hop-by-hop and X-Forwarded headers both ways.
func (p *Proxy) exchange(w http.ResponseWriter, r *http.Request, conn net.Conn, target string) error {
	var failed error
	rp := httputil.ReverseProxy{
		Transport:     onConn(conn),
		Rewrite:       func(*httputil.ProxyRequest) {},
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			failed = &refusal{http.StatusBadGateway, "http_response_incomplete", fmt.Errorf("no answer from %s: %w", target, err)}
		},
	}
	rp.ServeHTTP(w, r)
	return failed
}

// onConn returns a transport that makes one request on conn.
func onConn(conn net.Conn) http.RoundTripper {
	return &http.Transport{
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		DisableKeepAlives:  true,
		DisableCompression: true,
	}
}

// idleConn is the connection to a destination. When nothing moves on it for
// idle, it fails, and so do the reads and writes of the client's connection: a
// client that stopped reading would else hold its request for ever.
type idleConn struct {
	net.Conn
	client *http.ResponseController
	idle   time.Duration

	mu       sync.Mutex
	released bool
}

// Read waits for at most idle, or longer while writes succeed.
func (c *idleConn) Read(b []byte) (int, error) {
	c.extend(time.Now().Add(c.idle))
	return c.Conn.Read(b)
}

// Write extends the time that a read in progress has.
func (c *idleConn) Write(b []byte) (int, error) {
	c.extend(time.Now().Add(c.idle))
	return c.Conn.Write(b)
}

// extend sets all deadlines. Its errors mean that a connection is closed, which
// the next read or write finds out as well.
func (c *idleConn) extend(deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.released {
		return // the client's connection may be serving another request
	}
	_ = c.SetDeadline(deadline)
	_ = c.client.SetReadDeadline(deadline)
	_ = c.client.SetWriteDeadline(deadline)
}

// release closes the connection and gives the client's back without deadlines,
// for its next request.
func (c *idleConn) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = true
	_ = c.client.SetReadDeadline(time.Time{})
	_ = c.client.SetWriteDeadline(time.Time{})
	_ = c.Close()
}
