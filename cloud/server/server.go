// Package server is the adapter's API: HTTP and JSON on a unix socket. See
// api/adapter for the contract.
package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
)

// Backend answers what is, from memory and at once.
type Backend interface {
	// Put says which instance should be.
	Put(provider, name string, req adapter.PutRequest) (adapter.Instance, error)
	// Delete says that none of this UID should be.
	Delete(provider, name, uid, providerID string) (adapter.Instance, error)
	// List returns everything that is known.
	List() adapter.List
}

// Observer is told about every request.
type Observer interface {
	// Answered says that a request was answered with this status.
	Answered(method string, status int, took time.Duration)
}

// Server serves the backend of the current term.
type Server struct {
	mayAct     func() error
	retryAfter time.Duration
	observer   Observer
	log        *slog.Logger
	current    atomic.Pointer[Backend]
}

// New returns a server without a backend: it answers 503 until Lead is called,
// and also while mayAct says that another adapter may have taken over, since
// what the backend knows is then old. retryAfter is what it tells callers to
// wait, rounded up to a second.
func New(mayAct func() error, retryAfter time.Duration, observer Observer, log *slog.Logger) *Server {
	return &Server{mayAct: mayAct, retryAfter: retryAfter, observer: observer, log: log}
}

// Lead makes the server answer from b until stop is called.
func (s *Server) Lead(b Backend) (stop func()) {
	s.current.Store(&b)
	return func() { s.current.CompareAndSwap(&b, nil) }
}

// Handler serves the API.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("PUT /v1/instances/{provider}/{name}", s.route(s.put))
	mux.Handle("DELETE /v1/instances/{provider}/{name}", s.route(s.delete))
	mux.Handle("GET /v1/instances", s.route(s.list))
	mux.Handle("/v1/instances/{provider}/{name}", s.refuse(http.StatusMethodNotAllowed, adapter.CodeMethod, "want PUT or DELETE", "PUT, DELETE"))
	mux.Handle("/v1/instances", s.refuse(http.StatusMethodNotAllowed, adapter.CodeMethod, "want GET", "GET"))
	mux.Handle("/", s.refuse(http.StatusNotFound, adapter.CodeNotFound, "want /v1/instances or /v1/instances/PROVIDER/NAME", ""))
	return mux
}

// errStandby: another adapter leads.
var errStandby = fmt.Errorf("%w: this adapter is not the one that may act, it waits for the lease", adapter.ErrNotReady)

type handler func(Backend, http.ResponseWriter, *http.Request) (any, error)

// route answers with what h returns, encoded before any header is written.
func (s *Server) route(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		status, body, after := s.answer(h, w, r)
		if after > 0 {
			w.Header().Set("Retry-After", strconv.FormatInt(int64((after+time.Second-1)/time.Second), 10))
		}
		write(w, status, body)
		s.observer.Answered(r.Method, status, time.Since(start))
	})
}

func (s *Server) answer(h handler, w http.ResponseWriter, r *http.Request) (status int, body any, after time.Duration) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("panic in a request", "method", r.Method, "path", r.URL.Path, "err", fmt.Sprint(v))
			status, body = http.StatusInternalServerError, adapter.ErrorBody{Error: adapter.CodeInternal, Message: "a defect of the adapter; its log says more"}
		}
	}()
	b := s.current.Load()
	var out any
	err := errStandby
	if b != nil && s.mayAct() == nil {
		out, err = h(*b, w, r)
	}
	if err == nil {
		return http.StatusOK, out, 0
	}
	status, code := classify(err)
	if status == http.StatusServiceUnavailable {
		after = s.retryAfter
	}
	return status, adapter.ErrorBody{Error: code, Message: err.Error()}, after
}

var errMediaType = errors.New("want a body of content type application/json")

// classify is the status and code of an error: two are about HTTP alone.
func classify(err error) (int, string) {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, errMediaType):
		return http.StatusUnsupportedMediaType, adapter.CodeMediaType
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge, adapter.CodeTooLarge
	}
	return adapter.StatusOf(err)
}

func (s *Server) put(b Backend, w http.ResponseWriter, r *http.Request) (any, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, errMediaType
	}
	if r.URL.RawQuery != "" {
		return nil, fmt.Errorf("%w: PUT takes no query", adapter.ErrInvalid)
	}
	name := r.PathValue("name")
	req, err := adapter.DecodePutRequest(http.MaxBytesReader(w, r.Body, adapter.MaxBodyBytes), name)
	switch {
	case errors.Is(err, adapter.ErrInvalid):
		return nil, err
	case err != nil: // it broke off
		return nil, fmt.Errorf("%w: %w", adapter.ErrInvalid, err)
	}
	return b.Put(r.PathValue("provider"), name, req)
}

func (s *Server) delete(b Backend, _ http.ResponseWriter, r *http.Request) (any, error) {
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

func (s *Server) list(b Backend, _ http.ResponseWriter, _ *http.Request) (any, error) {
	return b.List(), nil
}

func (s *Server) refuse(status int, code, message, allow string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if allow != "" {
			w.Header().Set("Allow", allow)
		}
		write(w, status, adapter.ErrorBody{Error: code, Message: message})
		s.observer.Answered("other", status, 0)
	})
}

func write(w http.ResponseWriter, status int, body any) {
	var out bytes.Buffer
	if err := json.NewEncoder(&out).Encode(body); err != nil {
		status = http.StatusInternalServerError
		out.Reset()
		fmt.Fprintf(&out, `{"error":%q,"message":"the answer cannot be encoded"}`, adapter.CodeInternal)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes())
}
