package client

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// tunnels tracks every connection to one proxy. A connection pool that outlived the
// lease would go on using the proxy, and would send requests for the next proxy
// through the old one.
type tunnels struct {
	dialer net.Dialer

	mu     sync.Mutex
	open   map[*tunnel]struct{}
	closed bool
}

type tunnel struct {
	net.Conn
	of *tunnels
}

func newTunnels() *tunnels {
	return &tunnels{open: map[*tunnel]struct{}{}, dialer: net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}}
}

// transport returns a copy of template whose connections all go to the proxy.
func (t *tunnels) transport(template *http.Transport, proxy *url.URL) *http.Transport {
	out := template.Clone()
	out.Proxy = http.ProxyURL(proxy)
	out.DialContext = t.dial
	out.DialTLSContext = nil
	out.OnProxyConnectResponse = onConnect
	return out
}

func (t *tunnels) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	reach(ctx, StageDial, 0)
	conn, err := t.dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	reach(ctx, StageConnect, 0)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		_ = conn.Close()
		return nil, ErrReleased
	}
	c := &tunnel{Conn: conn, of: t}
	t.open[c] = struct{}{}
	return c, nil
}

// Close implements net.Conn.
func (c *tunnel) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// close closes all connections, also those in use, and refuses new ones.
func (t *tunnels) close() {
	t.mu.Lock()
	t.closed = true
	open := t.open
	t.open = map[*tunnel]struct{}{}
	t.mu.Unlock()
	for c := range open {
		_ = c.Conn.Close()
	}
}
