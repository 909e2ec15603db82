package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

var (
	// ErrNoProxy: no proxy was free within Want.Patience. The error that unwraps to
	// it is also an *APIError with the counts.
	ErrNoProxy = errors.New("no proxy to lease")
	// ErrLost: the lease ended before it was released.
	ErrLost = errors.New("lease lost")
	// ErrReleased: the lease was released, and its connections are closed.
	ErrReleased = errors.New("lease was released")
)

// APIError is an answer of the API with a status of 400 or above.
type APIError struct {
	// Status of the answer.
	Status int
	// Code is the member error: no_match, lease_gone and so on.
	Code string
	// Message for people.
	Message string
	// Reason of a lease_gone: expired, instance_replaced, instance_gone or
	// proxy_deleted.
	Reason string
	// RequestID is in discovery's log of the request.
	RequestID string
	// RetryAfter is the time before a retry. 0: a retry fails unless something else
	// changes.
	RetryAfter time.Duration
	// Counts of a no_match.
	Counts Counts
}

// Counts of the proxies that match a request, each counted once.
type Counts struct {
	Considered int `json:"considered"`
	AtCapacity int `json:"atCapacity"`
	InCooldown int `json:"inCooldown"`
	Unhealthy  int `json:"unhealthy"`
	Stale      int `json:"stale"`
	NotReady   int `json:"notReady"`
	Disabled   int `json:"disabled"`
	Excluded   int `json:"excluded"`
}

// Error has the code and the message.
func (e *APIError) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("discovery answered %d", e.Status)
	}
	return fmt.Sprintf("discovery answered %d %s: %s", e.Status, e.Code, e.Message)
}

// Is makes a no_match an ErrNoProxy.
func (e *APIError) Is(target error) bool { return target == ErrNoProxy && e.Code == "no_match" }

func newAPIError(a answer) *APIError {
	var p struct {
		Error    string `json:"error"`
		Message  string `json:"message"`
		Reason   string `json:"reason"`
		Instance string `json:"instance"`
		Counts
	}
	_ = json.Unmarshal(a.body, &p) // an intermediary may have answered
	return &APIError{
		Status: a.status, Code: p.Error, Message: p.Message, Reason: p.Reason, RequestID: p.Instance,
		RetryAfter: retryAfter(a.header), Counts: p.Counts,
	}
}

// retryable reports whether a retry of the same request may succeed.
func retryable(err error) bool {
	var e *APIError
	if !errors.As(err, &e) {
		return true
	}
	return e.RetryAfter > 0 || e.Status >= http.StatusInternalServerError
}

// ended reports whether the API has ended the lease. A 404 of an intermediary has no
// such code.
func ended(err error) bool {
	var e *APIError
	return errors.As(err, &e) && (e.Code == "unknown_lease" || e.Code == "lease_gone")
}
