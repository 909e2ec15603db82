// Package external has CONNECT proxies whose faults are switched while they run. They are the External proxies of a fault
// campaign, and run in its process.
package external

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/connectproxy"
)

// Mode is what a proxy does.
type Mode string

// Modes of a proxy.
const (
	Serve     Mode = "serve"     // opens tunnels to the one probe target that clients may reach
	Refuse    Mode = "refuse"    // closes the port, and every tunnel
	Hang      Mode = "hang"      // accepts connections and never responds
	Junk      Mode = "junk"      // opens the tunnel and sends meaningless bytes through it
	Page      Mode = "page"      // responds with a page that demands payment, and status 200
	Elsewhere Mode = "elsewhere" // opens a tunnel to another target than the requested one
	Forbid    Mode = "forbid"    // responds with 403
)

const (
	dialTimeout = 5 * time.Second
	idleTimeout = 2 * time.Minute // closes tunnels on which nothing moves
	// junk is no TLS record: its first byte is no content type.
	junk = "\x00\x01\x02\x03 this is not what you asked for \xff\xfe\xfd"
	// page is the response of a proxy whose owner was not paid.
	page = "<html><body>Your plan has ended. Please pay.</body></html>"
)

// Sites are where tunnels may lead, as host:port.
type Sites struct {
	Real     string // the one target that clients may request
	Impostor string // where tunnels to it lead in Elsewhere
}

// Proxy is a proxy with a switch.
type Proxy struct {
	addr  string
	sites Sites

	mu     sync.Mutex
	mode   Mode
	ln     net.Listener // nil while the port is closed
	conns  context.Context
	hangUp context.CancelFunc // closes the connections of conns
	busy   sync.WaitGroup
}

// Open opens a proxy that serves at a free port of ip.
func Open(ip string, sites Sites) (*Proxy, error) {
	p := &Proxy{addr: net.JoinHostPort(ip, "0"), sites: sites}
	p.conns, p.hangUp = context.WithCancel(context.Background())
	if err := p.Set(Serve); err != nil {
		return nil, err
	}
	return p, nil
}

// Addr is its host:port. It never changes.
func (p *Proxy) Addr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addr
}

// Set switches the proxy. Open tunnels stay open except in Refuse; the connections that Hang kept waiting are closed. In all
// other modes the port is open when it returns.
func (p *Proxy) Set(mode Mode) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.mode
	p.mode = mode
	if mode == Refuse || was == Hang {
		p.hangUp()
		p.conns, p.hangUp = context.WithCancel(context.Background())
	}
	if mode == Refuse {
		return p.closePort()
	}
	return p.openPort()
}

// Close closes the proxy for good.
func (p *Proxy) Close() error {
	err := p.Set(Refuse)
	p.busy.Wait()
	return err
}

func (p *Proxy) closePort() error {
	if p.ln == nil {
		return nil
	}
	err := p.ln.Close()
	p.ln = nil
	return err
}

func (p *Proxy) openPort() error {
	if p.ln != nil {
		return nil
	}
	ln, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("open proxy %s: %w", p.addr, err)
	}
	p.ln, p.addr = ln, ln.Addr().String()
	p.busy.Go(func() { p.accept(ln) })
	return nil
}

func (p *Proxy) accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of file descriptors, or the client has gone
			continue
		}
		p.busy.Go(func() { p.serve(conn) })
	}
}

func (p *Proxy) serve(conn net.Conn) {
	p.mu.Lock()
	mode, ctx := p.mode, p.conns
	p.mu.Unlock()
	switch mode {
	case Refuse:
		_ = conn.Close()
	case Hang:
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		_, _ = io.Copy(io.Discard, conn)
	default:
		open := func(ctx context.Context, r connectproxy.Request) (net.Conn, error) { return p.open(ctx, mode, r) }
		(&connectproxy.Proxy{Open: open, IdleTimeout: idleTimeout}).ServeConn(ctx, conn)
	}
}

// open connects to the destination of a request in that mode.
func (p *Proxy) open(ctx context.Context, mode Mode, r connectproxy.Request) (net.Conn, error) {
	switch {
	case r.Method != http.MethodConnect:
		return nil, &connectproxy.Refusal{Status: http.StatusBadRequest}
	case r.Target != p.sites.Real || mode == Forbid:
		return nil, &connectproxy.Refusal{Status: http.StatusForbidden}
	case mode == Page:
		return nil, &connectproxy.Refusal{Status: http.StatusOK, Err: errors.New(page)}
	case mode == Junk:
		return p.openJunk(), nil
	}
	to := p.sites.Real
	if mode == Elsewhere {
		to = p.sites.Impostor
	}
	return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", to)
}

// openJunk returns a connection to a destination that responds to the first byte with junk.
func (p *Proxy) openJunk() net.Conn {
	near, far := net.Pipe()
	p.busy.Go(func() {
		defer far.Close()
		if _, err := far.Read(make([]byte, 1)); err != nil {
			return
		}
		p.busy.Go(func() { _, _ = io.WriteString(far, junk) })
		_, _ = io.Copy(io.Discard, far)
	})
	return near
}
