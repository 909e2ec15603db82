package provider

import (
	"errors"
	"fmt"
	"strings"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
)

// Classes of errors: what a caller has to do about them.
var (
	// ErrNotFound: there is none; an answer, not a failure.
	ErrNotFound = errors.New("not found")
	// ErrAlreadyExists: the name is taken; look who has it.
	ErrAlreadyExists = errors.New("already exists")
	// ErrQuotaExceeded: wait, and tell people which quota.
	ErrQuotaExceeded = errors.New("quota exceeded")
	// ErrStockout: the zone has no capacity; try another one, or wait.
	ErrStockout = errors.New("out of capacity")
	// ErrRateLimited: too many calls; make none for a while.
	ErrRateLimited = errors.New("rate limited")
	// ErrPermanent: the same call will fail again.
	ErrPermanent = errors.New("permanent failure")
	// ErrTransient: try again later.
	ErrTransient = errors.New("transient failure")
	// ErrNotWriter: this adapter may not change anything now. The call was not
	// made.
	ErrNotWriter = errors.New("not the adapter that may act")
)

// Error is a classified failure. It unwraps to both its class and its cause, so
// that errors.Is finds the one and errors.As the other.
type Error struct {
	// Class is one of the sentinels of this package.
	Class error
	// Op that failed: insert, get, delete, operation or list.
	Op string
	// Target it was about, such as a provider ID.
	Target string
	// Unsure: the call may have taken effect all the same, as after a lost
	// answer.
	Unsure bool
	// Err is the cause. It must not hold user data.
	Err error
}

// Error says what failed, for what, and why.
func (e *Error) Error() string {
	return fmt.Sprintf("%s %s: %s", e.Op, e.Target, e.Err)
}

// Unwrap returns class and cause.
func (e *Error) Unwrap() []error { return []error{e.Class, e.Err} }

// Class returns the class of err, nil for nil. Whatever was not classified is
// transient: to try again is safer than to give up.
func Class(err error) error {
	if err == nil {
		return nil
	}
	for _, class := range classes() {
		if errors.Is(err, class) {
			return class
		}
	}
	return ErrTransient
}

func classes() []error {
	return []error{
		ErrNotWriter, ErrNotFound, ErrAlreadyExists, ErrQuotaExceeded,
		ErrStockout, ErrRateLimited, ErrPermanent, ErrTransient,
	}
}

// Result is the class as a metric's label: "ok", "not_found", "quota_exceeded"
// and so on.
func Result(err error) string {
	if err == nil {
		return "ok"
	}
	return strings.ReplaceAll(Class(err).Error(), " ", "_")
}

// MayHaveTakenEffect reports whether a call that returned err may have changed
// something. An unclassified error may have come from anywhere.
func MayHaveTakenEffect(err error) bool {
	if err == nil || errors.Is(err, ErrNotWriter) {
		return false
	}
	var e *Error
	return !errors.As(err, &e) || e.Unsure
}

// FailureClass is the class in the hooks' words.
func FailureClass(err error) adapter.FailureClass {
	switch class := Class(err); {
	case errors.Is(class, ErrQuotaExceeded):
		return adapter.FailureQuotaExceeded
	case errors.Is(class, ErrStockout):
		return adapter.FailureStockout
	case errors.Is(class, ErrPermanent):
		return adapter.FailurePermanent
	}
	return adapter.FailureTransient
}
