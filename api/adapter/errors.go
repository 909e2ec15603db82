package adapter

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Classes of errors, the same on both sides of the socket: what the adapter
// returns within itself is what its client gets.
var (
	// ErrInvalid: the adapter refuses this request and always will.
	ErrInvalid = errors.New("invalid request")
	// ErrUnknownProvider: the adapter's provider config has no such provider.
	ErrUnknownProvider = errors.New("unknown provider")
	// ErrDeleted: a DELETE came for this UID before.
	ErrDeleted = errors.New("it has been deleted, and UIDs are never used again")
	// ErrConflict: the UID is another provider's. It is also an ErrInvalid.
	ErrConflict = fmt.Errorf("%w: another provider's instance", ErrInvalid)
	// ErrNotReady: the adapter is there and does not know the answer yet.
	ErrNotReady = errors.New("cloud adapter not ready")
	// ErrUnavailable: no answer, or none that can be trusted. Nothing is known
	// about the instance.
	ErrUnavailable = errors.New("cloud adapter unavailable")
)

// StatusError is an answer of the adapter that is not 200. It unwraps to one of
// the classes above.
type StatusError struct {
	// Status is the HTTP status code.
	Status int
	// Body is what the adapter said.
	Body ErrorBody
	// RetryAfter is when to ask again; 0 when the adapter did not say.
	RetryAfter time.Duration
}

// Error says what the adapter said.
func (e *StatusError) Error() string {
	return fmt.Sprintf("cloud adapter: %d %s: %s", e.Status, e.Body.Error, e.Body.Message)
}

// Unwrap returns the class.
func (e *StatusError) Unwrap() error {
	switch {
	case e.Body.Error == CodeNotReady:
		return ErrNotReady
	case e.Body.Error == CodeUnknownProvider:
		return ErrUnknownProvider
	case e.Body.Error == CodeDeleted:
		return ErrDeleted
	case e.Body.Error == CodeConflict:
		return ErrConflict
	case e.Status >= http.StatusBadRequest && e.Status < http.StatusInternalServerError:
		return ErrInvalid
	}
	return ErrUnavailable
}

// StatusOf is the HTTP status and the code that an error of the adapter is
// answered with, such that the client's error unwraps to the same class. What
// has none is a defect.
func StatusOf(err error) (status int, code string) {
	switch {
	case errors.Is(err, ErrNotReady):
		return http.StatusServiceUnavailable, CodeNotReady
	case errors.Is(err, ErrUnknownProvider):
		return http.StatusNotFound, CodeUnknownProvider
	case errors.Is(err, ErrDeleted):
		return http.StatusConflict, CodeDeleted
	case errors.Is(err, ErrConflict):
		return http.StatusConflict, CodeConflict
	case errors.Is(err, ErrInvalid):
		return http.StatusBadRequest, CodeInvalid
	}
	return http.StatusInternalServerError, CodeInternal
}
