// Package relay is a proxy between Metacontroller and the hooks that can delay, cut or
// drop responses.
package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Mode is what the relay does with responses.
type Mode struct {
	Delay time.Duration // before each response
	Cut   bool          // close the connection after half of the body
	Fail  bool          // return 503 without a call of the hook
}

// maxBody is for requests and responses.
const maxBody = 16 << 20

// Relay forwards requests.
type Relay struct {
	to     string
	srv    *http.Server
	ln     net.Listener
	client *http.Client

	mu      sync.Mutex
	mode    Mode
	changed chan struct{} // closed when the mode changes
}

// Start starts a relay on a free port of ip, to the hooks at host:port.
func Start(ip, hooks string) (*Relay, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return nil, fmt.Errorf("relay to the hooks: %w", err)
	}
	r := &Relay{to: "http://" + hooks, ln: ln, changed: make(chan struct{}), client: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 10 * time.Second, DisableCompression: true},
	}}
	r.srv = &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = r.srv.Serve(ln) }() // ends with Close
	return r, nil
}

// Addr is where it listens, as host:port.
func (r *Relay) Addr() string { return r.ln.Addr().String() }

// Set changes the mode. Delayed responses are sent at once.
func (r *Relay) Set(m Mode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mode = m
	close(r.changed)
	r.changed = make(chan struct{})
}

// Close closes the relay and its connections.
func (r *Relay) Close() error {
	r.Set(Mode{})
	err := r.srv.Close()
	r.client.CloseIdleConnections()
	return err
}

func (r *Relay) current() (Mode, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mode, r.changed
}

// ServeHTTP forwards one request.
func (r *Relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	mode, changed := r.current()
	if mode.Fail {
		http.Error(w, "injected fault", http.StatusServiceUnavailable)
		return
	}
	resp, body, err := r.ask(req)
	if err != nil {
		panic(http.ErrAbortHandler) // as if the hooks' connection broke
	}
	if mode.Delay > 0 {
		hold(req.Context(), mode.Delay, changed)
	}
	for _, name := range []string{"Content-Type", "Retry-After"} {
		if v := resp.Header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(resp.StatusCode)
	if mode.Cut {
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
}

// ask calls the hook and reads its whole response.
func (r *Relay) ask(req *http.Request) (*http.Response, []byte, error) {
	asked, err := io.ReadAll(io.LimitReader(req.Body, maxBody))
	if err != nil {
		return nil, nil, err
	}
	on, err := http.NewRequestWithContext(req.Context(), req.Method, r.to+req.URL.Path, bytes.NewReader(asked))
	if err != nil {
		return nil, nil, err
	}
	on.Header = req.Header.Clone()
	resp, err := r.client.Do(on)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = errors.New("the response is too long")
	}
	return resp, body, err
}

func hold(ctx context.Context, d time.Duration, changed <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
	}
}
