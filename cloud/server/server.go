// Package server is the adapter's API: HTTP and JSON on a unix socket. See
// api/adapter for the contract.
package server

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
)

// Backend returns cached state and never blocks on a provider.
type Backend interface {
	// Put stores which instance is desired.
	Put(provider, name string, req adapter.PutRequest) (adapter.Instance, error)
	// Delete stores that no instance of this UID is desired.
	Delete(provider, name, uid, providerID string) (adapter.Instance, error)
	// List returns the whole cache.
	List() adapter.List
}

// Answered counts a response with this status.
type Answered func(method string, status int, took time.Duration)

// Server serves the backend of the current term.
type Server struct {
	mayAct     func() error
	retryAfter time.Duration
	shell      httpapi.Shell // of the contract's routes
	refusals   httpapi.Shell // of all other requests
	current    atomic.Pointer[Backend]
}

// New returns a server without a backend: it responds with 503 until Lead is
// called, and while mayAct returns an error, since the backend's cache is stale
// once another adapter may act. retryAfter is the Retry-After of a 503, rounded up
// to a second.
func New(mayAct func() error, retryAfter time.Duration, answered Answered, log *slog.Logger) *Server {
	s := &Server{mayAct: mayAct, retryAfter: retryAfter}
	shell := httpapi.Shell{MaxBody: adapter.MaxBodyBytes, Error: s.errorResponse, Log: log}
	s.shell, s.refusals = shell, shell
	s.shell.Answered = func(r *http.Request, status int, took time.Duration) { answered(r.Method, status, took) }
	s.refusals.Answered = func(_ *http.Request, status int, took time.Duration) { answered("other", status, took) }
	return s
}

// Lead makes the server respond from b until stop is called.
func (s *Server) Lead(b Backend) (stop func()) {
	s.current.Store(&b)
	return func() { s.current.CompareAndSwap(&b, nil) }
}

// Handler serves the API.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("PUT /v1/instances/{provider}/{name}", s.route(put))
	mux.Handle("DELETE /v1/instances/{provider}/{name}", s.route(remove))
	mux.Handle("GET /v1/instances", s.route(list))
	mux.Handle("/v1/instances/{provider}/{name}", s.refuse(http.StatusMethodNotAllowed, adapter.CodeMethod, "want PUT or DELETE", "PUT, DELETE"))
	mux.Handle("/v1/instances", s.refuse(http.StatusMethodNotAllowed, adapter.CodeMethod, "want GET", "GET"))
	mux.Handle("/", s.refuse(http.StatusNotFound, adapter.CodeNotFound, "want /v1/instances or /v1/instances/PROVIDER/NAME", ""))
	return mux
}

// errStandby: another adapter holds the lease.
var errStandby = fmt.Errorf("%w: this adapter is not the one that may act, it waits for the lease", adapter.ErrNotReady)

// route serves h with the current backend.
func (s *Server) route(h func(Backend, *http.Request) (any, error)) http.Handler {
	return s.shell.Serve(func(r *http.Request) (httpapi.Response, error) {
		b := s.current.Load()
		if b == nil || s.mayAct() != nil {
			return httpapi.Response{}, errStandby
		}
		body, err := h(*b, r)
		return httpapi.Response{Status: http.StatusOK, Body: body}, err
	})
}

// errorResponse maps an error to its status. Errors of HTTP itself and panics come
// first, the contract's errors follow.
func (s *Server) errorResponse(_ *http.Request, err error) httpapi.Response {
	status, code := adapter.StatusOf(err)
	message := err.Error()
	switch {
	case errors.Is(err, httpapi.ErrPanic):
		message = "a defect of the adapter; see its log"
	case errors.Is(err, httpapi.ErrMediaType):
		status, code = http.StatusUnsupportedMediaType, adapter.CodeMediaType
	case httpapi.TooLarge(err):
		status, code = http.StatusRequestEntityTooLarge, adapter.CodeTooLarge
	}
	res := httpapi.Response{Status: status, Body: adapter.ErrorBody{Error: code, Message: message}}
	if status == http.StatusServiceUnavailable {
		res.Header = httpapi.RetryAfter(s.retryAfter)
	}
	return res
}

func put(b Backend, r *http.Request) (any, error) {
	if err := httpapi.WantJSON(r); err != nil {
		return nil, err
	}
	if r.URL.RawQuery != "" {
		return nil, fmt.Errorf("%w: PUT takes no query", adapter.ErrInvalid)
	}
	name := r.PathValue("name")
	req, err := adapter.DecodePutRequest(r.Body, name)
	switch {
	case errors.Is(err, adapter.ErrInvalid) || httpapi.TooLarge(err):
		return nil, err
	case err != nil: // the body ended early
		return nil, fmt.Errorf("%w: %w", adapter.ErrInvalid, err)
	}
	return b.Put(r.PathValue("provider"), name, req)
}

func remove(b Backend, r *http.Request) (any, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("%w: query: %w", adapter.ErrInvalid, err)
	}
	for key, values := range query {
		if (key != "uid" && key != "providerID") || len(values) != 1 {
			return nil, fmt.Errorf("%w: query: want uid and providerID, each once at most", adapter.ErrInvalid)
		}
	}
	name, uid, id := r.PathValue("name"), query.Get("uid"), query.Get("providerID")
	if err := adapter.CheckName(name, uid); err != nil {
		return nil, err
	}
	if len(id) > adapter.MaxProviderIDBytes {
		return nil, fmt.Errorf("%w: providerID has %d bytes: want at most %d", adapter.ErrInvalid, len(id), adapter.MaxProviderIDBytes)
	}
	return b.Delete(r.PathValue("provider"), name, uid, id)
}

func list(b Backend, _ *http.Request) (any, error) { return b.List(), nil }

// refuse serves a request that matches no route of the contract.
func (s *Server) refuse(status int, code, message, allow string) http.Handler {
	res := httpapi.Response{Status: status, Body: adapter.ErrorBody{Error: code, Message: message}}
	if allow != "" {
		res.Header = http.Header{"Allow": {allow}}
	}
	return s.refusals.Serve(func(*http.Request) (httpapi.Response, error) { return res, nil })
}

// socketMode admits the owner and its group, which the containers of a Pod share.
const socketMode = 0o660

// Listen listens on the unix socket at path. It replaces the socket of a killed
// adapter. A socket with a listener, and a file that is no socket, are errors.
func Listen(path string) (net.Listener, error) {
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	// The umask applies when the file is created, so that it never has another mode.
	before := syscall.Umask(0o777 &^ socketMode)
	ln, err := net.Listen("unix", path)
	syscall.Umask(before)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return ln, nil
}

// removeStale removes a socket without a listener.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("the file is not a socket; choose another path")
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return errors.New("another adapter listens here")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}
