package api

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/access"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
)

// requestIDHeader carries a request's id in both directions.
const requestIDHeader = "X-Request-Id"

// maxRequestID is the longest request id that is accepted from a client.
const maxRequestID = 64

// call is per-request state that inner handlers fill in for the outer ones.
type call struct {
	id     string
	holder *access.Holder // nil until authenticated
	conn   *http.ResponseController
}

// mayWait lifts the server's read timeout once the request is read. When it fires,
// net/http cancels the context of a request that still waits, as if its client had
// disconnected.
func (c *call) mayWait() {
	if c.conn != nil {
		_ = c.conn.SetReadDeadline(time.Time{}) // best effort
	}
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{}
}

// withCall keeps the client's request id when it is safe to log and to send back,
// and makes one otherwise.
func withCall(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestIDHeader)
		if !validRequestID(id) {
			id = rand.Text()
		}
		w.Header().Set(requestIDHeader, id)
		// The default: answers hold credentials or change every second.
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKey{}, &call{id: id, conn: http.NewResponseController(w)})))
	})
}

func validRequestID(id string) bool {
	return id != "" && len(id) <= maxRequestID && !strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
	})
}

// observe logs and counts each request once, by route pattern: the number of paths
// is unbounded, and they contain lease ids.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := s.cfg.Clock.Now()
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		next.ServeHTTP(ww, r)
		took := s.cfg.Clock.Since(start)
		route := s.routeOf(r)
		s.cfg.Metrics.observe(route, r.Method, ww.Status(), took)
		level := slog.LevelInfo
		if route == healthPath {
			level = slog.LevelDebug
		}
		s.cfg.Log.Log(r.Context(), level, "request", "method", clip(r.Method), "route", route, "status", ww.Status(),
			"bytes", ww.BytesWritten(), "duration", took.String(), "remote", r.RemoteAddr, "token", holderName(r), "request", callOf(r.Context()).id)
	})
}

// unmatched stands for all paths without a route.
const unmatched = "unmatched"

func (s *Server) routeOf(r *http.Request) string {
	pattern := chi.RouteContext(r.Context()).RoutePattern()
	for _, rt := range s.table {
		if rt.pattern == pattern {
			return pattern
		}
	}
	return unmatched
}

// authenticated answers requests that authenticate refuses, before their route is
// known.
func (s *Server) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.authenticate(r); err != nil {
			s.shell.Serve(func(*http.Request) (httpapi.Response, error) { return httpapi.Response{}, err }).ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authenticate refuses requests without a known token, and throttles tokens to
// their rate limit.
func (s *Server) authenticate(r *http.Request) error {
	if s.cfg.Tokens == nil || s.isOpen(r.URL.Path) {
		return nil
	}
	header := r.Header.Get("Authorization")
	holder := s.cfg.Tokens.Identify(header)
	if holder == nil {
		return unauthorized(header)
	}
	callOf(r.Context()).holder = holder
	ok, wait := holder.Allow(s.cfg.Clock.Now())
	s.cfg.Metrics.tokenRequest(holder.Name, ok)
	if !ok {
		err := failf(codeTooManyRequests, "the token %s is over its rate limit; retry after Retry-After, and send fewer requests", holder.Name)
		err.retryAfter = wait
		return err
	}
	return nil
}

// isOpen reports whether the path belongs to a route without authentication.
func (s *Server) isOpen(path string) bool {
	for _, rt := range s.table {
		if rt.scope == "" && rt.pattern == path {
			return true
		}
	}
	return false
}

func unauthorized(header string) *apiError {
	err := failf(codeUnauthorized, "the bearer token is unknown")
	if header == "" {
		err = failf(codeUnauthorized, "send the header Authorization: Bearer TOKEN")
	}
	err.header = http.Header{"Www-Authenticate": {`Bearer realm="discovery"`}}
	return err
}

// holderName is the name of the request's token, "" without authentication.
func holderName(r *http.Request) string {
	if h := callOf(r.Context()).holder; h != nil {
		return h.Name
	}
	return ""
}
