package api

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// code is the word by which programs tell errors apart.
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

// problemKind is what all errors of one code have in common.
type problemKind struct {
	status int
	title  string
	// retryAfter is sent when nothing better is known; 0 sends none.
	retryAfter time.Duration
}

// problems is the one table of all errors that the API answers with.
func problems() map[code]problemKind {
	return map[code]problemKind{
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
		codeTooManyRequests:        {status: http.StatusTooManyRequests, title: "The bearer token has sent too many requests", retryAfter: time.Second},
		codeTooManySessions:        {status: http.StatusTooManyRequests, title: "The bearer token has as many sessions as it may", retryAfter: time.Second},
		codeTooManyCooldowns:       {status: http.StatusTooManyRequests, title: "The report cannot be kept now", retryAfter: time.Second},
		codeInternal:               {status: http.StatusInternalServerError, title: "Something went wrong on our side"},
		codeNotReady:               {status: http.StatusServiceUnavailable, title: "The fleet is not known yet", retryAfter: 2 * time.Second},
		codeCredentialsUnavailable: {status: http.StatusServiceUnavailable, title: "The proxy's credentials cannot be read", retryAfter: 10 * time.Second},
		codeStoreUnavailable:       {status: http.StatusServiceUnavailable, title: "The lease store cannot answer now", retryAfter: 5 * time.Second},
	}
}

// apiError is an error that knows how to be answered.
type apiError struct {
	code   code
	detail string
	// counts of a no_match, nil otherwise.
	counts *noMatchCounts
	// reason of a lease_gone, "" otherwise.
	reason lease.EndReason
	// retryAfter is more than 0 when the moment is known.
	retryAfter time.Duration
	// header has what else the answer needs, such as Allow.
	header http.Header
	// cause is logged and never sent.
	cause error
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

// problem is the body of every error: RFC 9457 members, and error and message
// as machine and people read them.
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

// problemType names the code as RFC 9457 asks for, by a tag URI (RFC 4151):
// there is no page behind it.
func problemType(c code) string { return "tag:crawl.example.com,2026:problem:" + string(c) }

// problemFor turns any error of a handler into its answer.
func problemFor(err error, requestID string) (problem, http.Header) {
	e := classify(err)
	kind := problems()[e.code]
	p := problem{
		Type:          problemType(e.code),
		Title:         kind.title,
		Status:        kind.status,
		Detail:        e.detail,
		Instance:      requestID,
		Error:         e.code,
		Message:       e.detail,
		Reason:        e.reason,
		noMatchCounts: e.counts,
	}
	header := http.Header{}
	for k, v := range e.header {
		header[k] = v
	}
	retryAfter := kind.retryAfter
	if e.retryAfter > 0 {
		retryAfter = e.retryAfter
	}
	if retryAfter > 0 {
		p.RetryAfterSeconds = wholeSeconds(retryAfter)
		header.Set("Retry-After", fmt.Sprint(p.RetryAfterSeconds))
	}
	return p, header
}

// wholeSeconds rounds up, so that a client that waits as told is not early.
func wholeSeconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }

// classify finds the apiError in err, or makes one.
func classify(err error) *apiError {
	var e *apiError
	var tooLarge *http.MaxBytesError
	var ended *lease.EndedError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &ended):
		gone := failf(codeLeaseGone, "%v; stop using the proxy, close connections through it, and get another lease", ended)
		gone.reason = ended.Reason
		return gone
	case errors.Is(err, lease.ErrKeyReused):
		return failf(codeKeyReused, "a lease that still runs was granted under this %s to another request; use a key of its own for every request", keyHeader)
	case errors.As(err, &tooLarge):
		return failf(codeBodyTooLarge, "the request body has more than %d bytes, the most that is taken", tooLarge.Limit)
	case errors.Is(err, lease.ErrUnknown):
		return failf(codeUnknownLease, "no lease has this id: it was released, never granted, granted to another token, or has expired too long ago to be known")
	case errors.Is(err, fleet.ErrNotSynced):
		return &apiError{code: codeNotReady, detail: "the list of proxies has not come in yet; try again shortly", cause: err}
	}
	return &apiError{code: codeInternal, detail: "this is a defect or a fault on our side; the log has it under this request id", cause: err}
}
