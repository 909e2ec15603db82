// Package external has CONNECT proxies that can be switched: to be dead, to hang
// and to lie. They play the proxies of others in a fault campaign, and live in
// its own process.
package external

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Mode is what a proxy does.
type Mode string

// Modes of a proxy.
const (
	// Serve opens tunnels to the one site that proxies may reach.
	Serve Mode = "serve"
	// Refuse closes the port, and every tunnel.
	Refuse Mode = "refuse"
	// Hang accepts connections and never says a word.
	Hang Mode = "hang"
	// Junk says that the tunnel is open and sends bytes that mean nothing.
	Junk Mode = "junk"
	// Page answers with a page that wants money, and status 200.
	Page Mode = "page"
	// Elsewhere opens a tunnel to another site than the one asked for.
	Elsewhere Mode = "elsewhere"
	// Forbid answers 403.
	Forbid Mode = "forbid"
)

const (
	requestTimeout = 10 * time.Second
	dialTimeout    = 5 * time.Second
	// tunnelLife bounds a tunnel: nobody's takes longer.
	tunnelLife = 2 * time.Minute
)

// Sites are where tunnels may lead, as host:port.
type Sites struct {
	// Real is the one that may be asked for.
	Real string
	// Impostor is where tunnels to it lead in Elsewhere.
	Impostor string
}

// Proxy is one that can be switched.
type Proxy struct {
	addr  string
	sites Sites

	mu    sync.Mutex
	mode  Mode
	ln    net.Listener // nil while the port is closed
	conns map[net.Conn]bool
	busy  sync.WaitGroup
}

// Open opens a proxy that serves at a free port of ip.
func Open(ip string, sites Sites) (*Proxy, error) {
	p := &Proxy{addr: net.JoinHostPort(ip, "0"), sites: sites, conns: map[net.Conn]bool{}}
	if err := p.Set(Serve); err != nil {
		return nil, err
	}
	return p, nil
}

// Addr is where it is, as host:port. It never changes.
func (p *Proxy) Addr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addr
}

// Set switches the proxy. Tunnels that are open stay so, but in Refuse; who was
// kept waiting is hung up on. In all other modes the port is open when it
// returns.
func (p *Proxy) Set(mode Mode) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.mode
	p.mode = mode
	if mode == Refuse || was == Hang {
		p.hangUp()
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

func (p *Proxy) hangUp() {
	for conn := range p.conns {
		_ = conn.Close()
	}
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
			time.Sleep(10 * time.Millisecond) // no file descriptors, or the peer went at once
			continue
		}
		p.busy.Go(func() { p.serve(conn) })
	}
}

// enter notes the connection and says what to do with it; false means that it
// came too late.
func (p *Proxy) enter(conn net.Conn) (Mode, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[conn] = true
	return p.mode, p.mode != Refuse
}

func (p *Proxy) leave(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
	_ = conn.Close()
}

func (p *Proxy) serve(conn net.Conn) {
	mode, welcome := p.enter(conn)
	defer p.leave(conn)
	if !welcome {
		return
	}
	if mode == Hang {
		discard(conn)
		return
	}
	_ = conn.SetDeadline(time.Now().Add(requestTimeout))
	from := bufio.NewReader(conn)
	host, ok := readConnect(from)
	switch {
	case !ok:
		say(conn, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	case host != p.sites.Real || mode == Forbid:
		say(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	case mode == Page:
		say(conn, page())
		endWriting(conn)
		discard(conn)
	case mode == Junk:
		babble(conn, from)
	case mode == Elsewhere:
		p.tunnel(conn, from, p.sites.Impostor)
	default:
		p.tunnel(conn, from, p.sites.Real)
	}
}

func (p *Proxy) tunnel(conn net.Conn, from *bufio.Reader, to string) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	var dialer net.Dialer
	site, err := dialer.DialContext(ctx, "tcp", to)
	if err != nil {
		say(conn, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return
	}
	defer site.Close()
	for _, c := range []net.Conn{conn, site} {
		_ = c.SetDeadline(time.Now().Add(tunnelLife))
	}
	say(conn, established)
	splice(conn, from, site)
}
