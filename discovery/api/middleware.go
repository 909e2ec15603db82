package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/access"
)

// requestIDHeader carries a request's id in both directions.
const requestIDHeader = "X-Request-Id"

// maxRequestID is the length of the longest request id that is taken over.
const maxRequestID = 64

// call is what is known about a request beside the request. The middlewares
// fill it in, those outside see what those inside found out.
type call struct {
	id     string
	holder *access.Holder // nil until authenticated
	conn   *http.ResponseController
}

// mayWait lifts the limit of the time for reading a request, once it is read: a
// client that waits for an answer would be taken for gone when that is over.
func (c *call) mayWait() {
	if c.conn != nil {
		_ = c.conn.SetReadDeadline(time.Time{}) // else it is taken for gone
	}
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{}
}

func requestID(ctx context.Context) string { return callOf(ctx).id }

// withCall takes over the client's request id when it is one that is safe to log
// and to send back, and makes one otherwise.
func withCall(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestIDHeader)
		if !validRequestID(id) {
			id = rand.Text()
		}
		w.Header().Set(requestIDHeader, id)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKey{}, &call{id: id, conn: http.NewResponseController(w)})))
	})
}

func validRequestID(id string) bool {
	return id != "" && len(id) <= maxRequestID && !strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
	})
}

// observe logs and counts each request once, by route and not by path: paths
// are without number, and hold lease ids.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := s.clock.Now()
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		next.ServeHTTP(ww, r)
		took := s.clock.Since(start)
		route := s.routeOf(r)
		s.metrics.observe(route, r.Method, ww.Status(), took)
		level := slog.LevelInfo
		if route == healthPath {
			level = slog.LevelDebug
		}
		s.log.Log(r.Context(), level, "request", "method", clip(r.Method), "route", route, "status", ww.Status(),
			"bytes", ww.BytesWritten(), "duration", took.String(), "remote", r.RemoteAddr, "token", holderName(r), "request", requestID(r.Context()))
	})
}

// unmatched stands for all paths that are no route.
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

// recovers answers 500 where a handler panicked, and logs where.
func (s *Server) recovers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(v) // asks the server to drop the connection
			}
			s.log.Error("handler panicked", "request", requestID(r.Context()), "stack", string(debug.Stack()))
			s.fail(w, r, fmt.Errorf("panic: %v", v))
		}()
		next.ServeHTTP(w, r)
	})
}

// capBody keeps bodies from filling the memory.
func capBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}
