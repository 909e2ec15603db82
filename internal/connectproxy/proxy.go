// Package connectproxy is a small forward proxy for HTTP: CONNECT tunnels, and plain requests in absolute form, one per
// connection. It has no cache, no authentication and no TLS of its own.
//
// It is for laptops and tests: the local stack's built-in proxy where squid is not installed, the External proxies of
// a fault campaign, and the proxies that the prober's tests probe.
package connectproxy

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	requestTimeout = 10 * time.Second // bounds the time in which a client sends the headers of its request
	// lingerTimeout bounds how long a refused connection stays half open: closing it with unread bytes resets it.
	lingerTimeout      = 2 * time.Second
	maxHeaderBytes     = 64 << 10        // bounds the headers of a request, as http.Server does
	defaultIdleTimeout = 5 * time.Minute // closes a tunnel on which nothing moves
)

// Request is what a client asks for.
type Request struct {
	*http.Request
	Client net.Addr // the address of the client's connection
	Target string   // host:port of the destination
}

// Refusal is an error that becomes the client's response. Every other error becomes a 502.
type Refusal struct {
	Status int    // the HTTP status code
	Kind   string // the error type for the Proxy-Status header (RFC 9209); empty for no header
	Err    error  // the body of the response; nil for none
}

// Error returns the body of the response.
func (r *Refusal) Error() string {
	if r.Err == nil {
		return http.StatusText(r.Status)
	}
	return r.Err.Error()
}

// Unwrap returns Err.
func (r *Refusal) Unwrap() error { return r.Err }

// Proxy serves the connections of clients.
type Proxy struct {
	// Open connects to the destination of a request.
	Open func(context.Context, Request) (net.Conn, error)
	// IdleTimeout closes a connection on which nothing moves; 0 is five minutes.
	IdleTimeout time.Duration
	// Log receives a line per request; nil for none.
	Log *slog.Logger
}

// Serve serves the clients of ln until ctx ends. Then it closes ln and all connections, waits for its goroutines and
// returns nil.
func (p *Proxy) Serve(ctx context.Context, ln net.Listener) error {
	return Accept(ctx, ln, p.ServeConn)
}

// Accept serves each connection of ln in a goroutine of its own until ctx ends. Then it closes ln, waits for the
// goroutines and returns nil. serve must close its connection, and return when its context ends.
func Accept(ctx context.Context, ln net.Listener, serve func(context.Context, net.Conn)) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			conns.Go(func() { serve(ctx, conn) })
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept connections: %w", err)
		default:
			time.Sleep(10 * time.Millisecond) // out of file descriptors, or the client has gone
		}
	}
}

// ServeConn serves the one request of a connection and closes the connection. It returns early when ctx ends.
func (p *Proxy) ServeConn(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	began := time.Now()
	_ = conn.SetDeadline(began.Add(requestTimeout))
	head := &io.LimitedReader{R: conn, N: maxHeaderBytes}
	from := bufio.NewReader(head)
	r, err := http.ReadRequest(from)
	head.N = math.MaxInt64
	if errors.Is(err, io.EOF) {
		return // the client sent nothing
	}
	req := Request{Request: r, Client: conn.RemoteAddr()}
	if err != nil {
		err = badRequest(err)
	} else {
		err = p.serve(ctx, conn, from, req)
	}
	p.log(req, began, err)
	if err != nil {
		refuse(conn, err)
		_, _ = io.Copy(io.Discard, from)
	}
}

// serve returns an error when the client has not received a response yet.
func (p *Proxy) serve(ctx context.Context, conn net.Conn, from io.Reader, req Request) error {
	var err error
	if req.Target, err = target(req.Request); err != nil {
		return badRequest(err)
	}
	_ = conn.SetDeadline(time.Time{})
	dropHopHeaders(req.Header)
	upstream, err := p.Open(ctx, req)
	if err != nil {
		return err
	}
	defer upstream.Close()
	defer context.AfterFunc(ctx, func() { _ = upstream.Close() })()
	client, up := pair(conn, from, upstream, cmp.Or(p.IdleTimeout, defaultIdleTimeout))
	if req.Method != http.MethodConnect {
		return forward(client, up, req)
	}
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		relay(client, up)
	}
	return nil
}

// target returns host:port of the destination.
func target(r *http.Request) (string, error) {
	if r.Method == http.MethodConnect {
		if r.URL.User != nil || r.URL.Path != "" || r.URL.RawQuery != "" {
			return "", errors.New("CONNECT takes host:port and nothing else")
		}
		return r.URL.Host, nil
	}
	if r.URL.Scheme != "http" || r.URL.Host == "" || r.URL.User != nil {
		return "", errors.New("this is a proxy: send CONNECT host:port, or a request for http://host/path")
	}
	if r.URL.Port() == "" {
		return net.JoinHostPort(r.URL.Hostname(), "80"), nil
	}
	return r.URL.Host, nil
}

func badRequest(err error) error {
	return &Refusal{Status: http.StatusBadRequest, Kind: "http_request_error", Err: err}
}

// refuse writes the response for err. Errors of writing are dropped: the client has gone.
func refuse(conn net.Conn, err error) {
	_ = conn.SetDeadline(time.Now().Add(lingerTimeout))
	var r *Refusal
	if !errors.As(err, &r) {
		r = &Refusal{Status: http.StatusBadGateway, Err: err}
	}
	header, body := "", ""
	if r.Kind != "" {
		header = "Proxy-Status: connectproxy; error=" + r.Kind + "\r\n"
	}
	if r.Err != nil {
		body = r.Err.Error() + "\n"
	}
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\n%sContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		r.Status, http.StatusText(r.Status), header, len(body), body)
	_ = closeWrite(conn)
}

func (p *Proxy) log(req Request, began time.Time, err error) {
	if p.Log == nil {
		return
	}
	log := p.Log.With("client", req.Client.String(), "duration", time.Since(began))
	if req.Request != nil {
		log = log.With("method", req.Method, "target", req.URL.Host)
	}
	if err != nil {
		log.Warn("request failed", "err", err)
	} else {
		log.Info("request served")
	}
}
