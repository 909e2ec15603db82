package provider

import (
	"errors"
	"fmt"
	"strings"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
)

// Classes of errors, by how the caller handles them.
var (
	ErrNotFound      = errors.New("not found")                    // the instance or operation does not exist. It is a result, not a failure
	ErrAlreadyExists = errors.New("already exists")               // the name is taken; read which instance has it
	ErrQuotaExceeded = errors.New("quota exceeded")               // retry later, and show which quota
	ErrStockout      = errors.New("out of capacity")              // the zone has no capacity; fall back to another one, or retry later
	ErrRateLimited   = errors.New("rate limited")                 // back off with all calls
	ErrPermanent     = errors.New("permanent failure")            // do not retry the same call
	ErrTransient     = errors.New("transient failure")            // retry later
	ErrNotWriter     = errors.New("not the adapter that may act") // this adapter does not hold the lease. The call was not sent
)

// classes in the order in which Class looks for them.
var classes = []error{
	ErrNotWriter, ErrNotFound, ErrAlreadyExists, ErrQuotaExceeded,
	ErrStockout, ErrRateLimited, ErrPermanent, ErrTransient,
}

// Error is a classified failure. It unwraps to both its class and its cause.
type Error struct {
	Class  error  // one of the sentinels of this package
	Op     string // insert, get, delete, operation or list
	Target string // of the call, such as a provider ID
	Unsure bool   // the call may have taken effect, as after a timeout
	Err    error  // the cause. It must not contain user data
}

// Error names the call, its target and the cause.
func (e *Error) Error() string {
	return fmt.Sprintf("%s %s: %s", e.Op, e.Target, e.Err)
}

// Unwrap returns class and cause.
func (e *Error) Unwrap() []error { return []error{e.Class, e.Err} }

// Class returns the class of err, nil for nil. An unclassified error is transient,
// since a retry is safer than a permanent failure.
func Class(err error) error {
	if err == nil {
		return nil
	}
	for _, class := range classes {
		if errors.Is(err, class) {
			return class
		}
	}
	return ErrTransient
}

// Result is the class as a metric label: "ok", "not_found", "quota_exceeded" and
// so on.
func Result(err error) string {
	if err == nil {
		return "ok"
	}
	return strings.ReplaceAll(Class(err).Error(), " ", "_")
}

// MayHaveTakenEffect reports whether a call that returned err may have changed
// something. An unclassified error counts as such.
func MayHaveTakenEffect(err error) bool {
	if err == nil || errors.Is(err, ErrNotWriter) {
		return false
	}
	var e *Error
	return !errors.As(err, &e) || e.Unsure
}

var failureClasses = map[error]adapter.FailureClass{
	ErrQuotaExceeded: adapter.FailureQuotaExceeded, ErrStockout: adapter.FailureStockout, ErrPermanent: adapter.FailurePermanent,
}

// FailureClass is the class in the contract with the hooks.
func FailureClass(err error) adapter.FailureClass {
	if class, ok := failureClasses[Class(err)]; ok {
		return class
	}
	return adapter.FailureTransient
}
