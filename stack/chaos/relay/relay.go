// Package relay is a proxy between Metacontroller and the hooks that can delay, cut or
// drop responses.
package relay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

// Mode is what the relay does with responses.
type Mode struct {
	Delay time.Duration // before each response
	Cut   bool          // close the connection after half of the body
	Fail  bool          // return 503 without a call of the hook
}

// maxBody is for responses.
const maxBody = 16 << 20

// Relay forwards requests.
type Relay struct {
	srv       *http.Server
	ln        net.Listener
	transport *http.Transport
	current   atomic.Pointer[setting]
}

type setting struct {
	Mode
	changed chan struct{} // closed when the mode changes
}

// Start starts a relay on a free port of ip, to the hooks at host:port.
func Start(ip, hooks string) (*Relay, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return nil, fmt.Errorf("relay to the hooks: %w", err)
	}
	r := &Relay{
		ln:        ln,
		transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 10 * time.Second, DisableCompression: true},
	}
	r.Set(Mode{})
	to := &url.URL{Scheme: "http", Host: hooks}
	forward := &httputil.ReverseProxy{
		Transport: r.transport,
		Rewrite:   func(req *httputil.ProxyRequest) { req.SetURL(to) },
		// As if the hooks' connection broke.
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ModifyResponse: r.hold,
	}
	r.srv = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.current.Load().Fail {
			http.Error(w, "injected fault", http.StatusServiceUnavailable)
			return
		}
		forward.ServeHTTP(w, req)
	})}
	go func() { _ = r.srv.Serve(ln) }() // ends with Close
	return r, nil
}

// Addr is where it listens, as host:port.
func (r *Relay) Addr() string { return r.ln.Addr().String() }

// Set changes the mode. Delayed responses are sent at once.
func (r *Relay) Set(m Mode) {
	if before := r.current.Swap(&setting{m, make(chan struct{})}); before != nil {
		close(before.changed)
	}
}

// Close closes the relay and its connections.
func (r *Relay) Close() error {
	r.Set(Mode{})
	err := r.srv.Close()
	r.transport.CloseIdleConnections()
	return err
}

// hold reads the whole response of the hook, and delays or cuts it.
func (r *Relay) hold(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return err
	}
	if len(body) > maxBody {
		return errors.New("the response is too long")
	}
	_ = resp.Body.Close()
	now := r.current.Load()
	select {
	case <-time.After(now.Delay):
	case <-now.changed:
	case <-resp.Request.Context().Done():
	}
	resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	if now.Cut {
		body = body[:len(body)/2]
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}
