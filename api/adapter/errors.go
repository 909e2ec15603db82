package adapter

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Classes that the client's errors unwrap to.
var (
	// ErrInvalid: the adapter refuses this request and always will.
	ErrInvalid = errors.New("invalid request")
	// ErrUnknownProvider: the adapter's provider config has no such provider.
	ErrUnknownProvider = errors.New("unknown provider")
	// ErrDeleted: a DELETE came for this UID before.
	ErrDeleted = errors.New("this UID has been deleted")
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
	case e.Status >= http.StatusBadRequest && e.Status < http.StatusInternalServerError:
		return ErrInvalid
	}
	return ErrUnavailable
}
