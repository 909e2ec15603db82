package adapter

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Classes of errors, the same on both sides of the socket: the client returns the
// class that the adapter's reconciler returned.
var (
	ErrInvalid         = errors.New("invalid request")  // the request is refused and must not be retried
	ErrUnknownProvider = errors.New("unknown provider") // the adapter's provider config has no such provider
	// ErrDeleted: this UID has a tombstone of an earlier DELETE.
	ErrDeleted = errors.New("it has been deleted, and UIDs are never used again")
	// ErrConflict: the UID belongs to another provider. It is also an ErrInvalid.
	ErrConflict = fmt.Errorf("%w: another provider's instance", ErrInvalid)
	ErrNotReady = errors.New("cloud adapter not ready") // the adapter has not cached the instance's state yet
	// ErrUnavailable: no response, or an invalid one. The instance's state is unknown.
	ErrUnavailable = errors.New("cloud adapter unavailable")
)

// StatusError is a response with another status than 200. It unwraps to one of the
// classes above.
type StatusError struct {
	Status     int           // the HTTP status code
	Body       ErrorBody     // of the response
	RetryAfter time.Duration // of the response; 0 for none
}

// Error returns status, code and message.
func (e *StatusError) Error() string {
	return fmt.Sprintf("cloud adapter: %d %s: %s", e.Status, e.Body.Error, e.Body.Message)
}

// errorTable maps error classes to status and code. The first class that matches
// wins, so that ErrConflict comes before ErrInvalid.
var errorTable = []struct {
	class  error
	status int
	code   string
}{
	{ErrNotReady, http.StatusServiceUnavailable, CodeNotReady},
	{ErrUnknownProvider, http.StatusNotFound, CodeUnknownProvider},
	{ErrDeleted, http.StatusConflict, CodeDeleted},
	{ErrConflict, http.StatusConflict, CodeConflict},
	{ErrInvalid, http.StatusBadRequest, CodeInvalid},
}

// Unwrap returns the class. Another 4xx is an ErrInvalid.
func (e *StatusError) Unwrap() error {
	for _, p := range errorTable {
		if e.Body.Error == p.code {
			return p.class
		}
	}
	if e.Status >= http.StatusBadRequest && e.Status < http.StatusInternalServerError {
		return ErrInvalid
	}
	return ErrUnavailable
}

// StatusOf returns the HTTP status and the code for an error, such that the client's
// error unwraps to the same class. An unclassified error is a defect (500).
func StatusOf(err error) (status int, code string) {
	for _, p := range errorTable {
		if errors.Is(err, p.class) {
			return p.status, p.code
		}
	}
	return http.StatusInternalServerError, CodeInternal
}
