package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
)

// code is the machine-readable name of an error.
type code string

const (
	codeInvalidRequest         code = "invalid_request"
	codeInvalidQuery           code = "invalid_query"
	codeInvalidTTL             code = "invalid_ttl"
	codeInvalidResult          code = "invalid_result"
	codeUnauthorized           code = "unauthorized"
	codeForbidden              code = "forbidden"
	codeUnknownLease           code = "unknown_lease"
	codeUnknownProxy           code = "unknown_proxy"
	codeUnknownRoute           code = "unknown_route"
	codeMethodNotAllowed       code = "method_not_allowed"
	codeNoMatch                code = "no_match"
	codeLeaseGone              code = "lease_gone"
	codeBodyTooLarge           code = "body_too_large"
	codeUnsupportedMediaType   code = "unsupported_media_type"
	codeKeyReused              code = "key_reused"
	codeTooManyRequests        code = "too_many_requests"
	codeTooManySessions        code = "too_many_sessions"
	codeTooManyCooldowns       code = "too_many_cooldowns"
	codeInternal               code = "internal"
	codeNotReady               code = "not_ready"
	codeCredentialsUnavailable code = "credentials_unavailable"
	codeStoreUnavailable       code = "store_unavailable"
)

// problemKind is what all errors of one code share.
type problemKind struct {
	status int
	title  string
	// retryAfter is the default of Retry-After; 0 sends none.
	retryAfter time.Duration
}

// problems is the table of all errors of the API.
var problems = map[code]problemKind{
	codeInvalidRequest:         {status: http.StatusBadRequest, title: "The request is not valid"},
	codeInvalidQuery:           {status: http.StatusBadRequest, title: "The query parameters are not valid"},
	codeInvalidTTL:             {status: http.StatusBadRequest, title: "ttlSeconds is out of range"},
	codeInvalidResult:          {status: http.StatusBadRequest, title: "The reported result is not known"},
	codeUnauthorized:           {status: http.StatusUnauthorized, title: "A valid bearer token is required"},
	codeForbidden:              {status: http.StatusForbidden, title: "The bearer token may not do this"},
	codeUnknownLease:           {status: http.StatusNotFound, title: "There is no such lease"},
	codeUnknownProxy:           {status: http.StatusNotFound, title: "There is no such proxy"},
	codeUnknownRoute:           {status: http.StatusNotFound, title: "There is no such route"},
	codeMethodNotAllowed:       {status: http.StatusMethodNotAllowed, title: "The route does not take this method"},
	codeNoMatch:                {status: http.StatusConflict, title: "No proxy can be leased now"},
	codeLeaseGone:              {status: http.StatusGone, title: "The lease has ended"},
	codeBodyTooLarge:           {status: http.StatusRequestEntityTooLarge, title: "The request body is too large"},
	codeUnsupportedMediaType:   {status: http.StatusUnsupportedMediaType, title: "The request body must be JSON"},
	codeKeyReused:              {status: http.StatusUnprocessableEntity, title: "The Idempotency-Key was used for another request"},
	codeTooManyRequests:        {status: http.StatusTooManyRequests, title: "The bearer token is over its rate limit", retryAfter: time.Second},
	codeTooManySessions:        {status: http.StatusTooManyRequests, title: "The bearer token has reached its limit of sessions", retryAfter: time.Second},
	codeTooManyCooldowns:       {status: http.StatusTooManyRequests, title: "The limit of cooldowns is reached", retryAfter: time.Second},
	codeInternal:               {status: http.StatusInternalServerError, title: "Internal error"},
	codeNotReady:               {status: http.StatusServiceUnavailable, title: "The fleet is not known yet", retryAfter: 2 * time.Second},
	codeCredentialsUnavailable: {status: http.StatusServiceUnavailable, title: "The proxy's credentials cannot be read", retryAfter: 10 * time.Second},
	codeStoreUnavailable:       {status: http.StatusServiceUnavailable, title: "The lease store cannot answer now", retryAfter: 5 * time.Second},
}

// apiError is an error with its answer.
type apiError struct {
	code   code
	detail string
	// counts of a no_match, nil otherwise.
	counts *noMatchCounts
	// reason of a lease_gone, "" otherwise.
	reason lease.EndReason
	// retryAfter replaces the default of the code when it is more than 0.
	retryAfter time.Duration
	// header has further headers of the answer, such as Allow.
	header http.Header
	// cause is logged and never sent.
	cause error
}

// errDisconnected: the client left before its answer, which is no failure of ours.
var errDisconnected = errors.New("the client disconnected")

// disconnected is the answer that such a client does not read.
func disconnected() *apiError {
	return &apiError{code: codeNotReady, detail: "the client disconnected, and nothing was granted to it", cause: errDisconnected}
}

func failf(c code, format string, args ...any) *apiError {
	return &apiError{code: c, detail: fmt.Sprintf(format, args...)}
}

// Error is for logs.
func (e *apiError) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.code, e.detail, e.cause)
	}
	return fmt.Sprintf("%s: %s", e.code, e.detail)
}

// Unwrap returns the cause.
func (e *apiError) Unwrap() error { return e.cause }

// problem is the body of every error: the members of RFC 9457, and error and
// message, the same for programs and for people.
type problem struct {
	Type              string          `json:"type"`
	Title             string          `json:"title"`
	Status            int             `json:"status"`
	Detail            string          `json:"detail"`
	Instance          string          `json:"instance"`
	Error             code            `json:"error"`
	Message           string          `json:"message"`
	Reason            lease.EndReason `json:"reason,omitempty"`
	RetryAfterSeconds int             `json:"retryAfterSeconds,omitempty"`
	*noMatchCounts
}

// problemType is the tag URI (RFC 4151) of a code, which RFC 9457 asks for.
func problemType(c code) string { return "tag:crawl.example.com,2026:problem:" + string(c) }

// problem answers any error of a handler, and logs those with a 5xx status.
func (s *Server) problem(r *http.Request, err error) httpapi.Response {
	e := classify(err)
	kind := problems[e.code]
	p := problem{
		Type:          problemType(e.code),
		Title:         kind.title,
		Status:        kind.status,
		Detail:        e.detail,
		Instance:      callOf(r.Context()).id,
		Error:         e.code,
		Message:       e.detail,
		Reason:        e.reason,
		noMatchCounts: e.counts,
	}
	header := http.Header{}
	retryAfter := kind.retryAfter
	if e.retryAfter > 0 {
		retryAfter = e.retryAfter
	}
	if retryAfter > 0 {
		p.RetryAfterSeconds = httpapi.WholeSeconds(retryAfter)
		header = httpapi.RetryAfter(retryAfter)
	}
	maps.Copy(header, e.header)
	if p.Status >= http.StatusInternalServerError && !errors.Is(err, errDisconnected) {
		level := slog.LevelError
		if p.Status == http.StatusServiceUnavailable { // ends by itself
			level = slog.LevelWarn
		}
		s.cfg.Log.Log(r.Context(), level, "request failed", "request", p.Instance, "code", string(p.Error), "err", err)
	}
	return httpapi.Response{Status: p.Status, ContentType: "application/problem+json", Header: header, Body: p}
}

// classify finds the apiError in err, or makes one.
func classify(err error) *apiError {
	var e *apiError
	var tooLarge *http.MaxBytesError
	var ended *lease.EndedError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &ended):
		gone := failf(codeLeaseGone, "%v; stop using the proxy, close connections through it, and acquire another lease", ended)
		gone.reason = ended.Reason
		return gone
	case errors.Is(err, lease.ErrKeyReused):
		return failf(codeKeyReused, "an active lease was granted under this %s to another request; use a key of its own for every request", keyHeader)
	case errors.As(err, &tooLarge):
		return failf(codeBodyTooLarge, "the request body has more than %d bytes, the limit", tooLarge.Limit)
	case errors.Is(err, lease.ErrUnknown):
		return failf(codeUnknownLease, "no lease has this id: it was released, never granted, granted to another token, or expired too long ago")
	case errors.Is(err, fleet.ErrNotSynced):
		return &apiError{code: codeNotReady, detail: "the first list of proxies is not in yet; retry shortly", cause: err}
	}
	return &apiError{code: codeInternal, detail: "this is a defect or a fault of the server; its log has it under this request id", cause: err}
}

// storeError is the answer to an error of the lease store: an error that lease.Store
// does not name is a 503 rather than a 500.
func (s *Server) storeError(err error) error {
	var ended *lease.EndedError
	var limit *lease.LimitError
	switch {
	case errors.Is(err, lease.ErrUnknown) || errors.Is(err, lease.ErrKeyReused) || errors.As(err, &ended):
		return err
	case errors.As(err, &limit):
		e := failf(codeTooManyCooldowns, "the report was dropped, since no active cooldown is evicted: %v; retry after Retry-After, or leave this proxy out with exclude", limit)
		if limit.Limit == lease.LimitSessions {
			e = failf(codeTooManySessions, "the session is new, and no other session is evicted: %v; reuse sessions, release leases early, or lease without a session", limit)
		}
		e.retryAfter = max(time.Second, limit.FreeAt.Sub(s.cfg.Clock.Now()))
		return e
	case errors.Is(err, context.Canceled): // only the request's own context is ever canceled
		return disconnected()
	}
	return &apiError{code: codeStoreUnavailable, detail: "the lease store is unavailable and nothing was granted; retry", cause: err}
}
