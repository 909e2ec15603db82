// Package provider is the contract between the adapter and a cloud. A cloud is one
// folder with an implementation of Cloud and one line in the registry of cmd/cloud;
// CONTRIBUTING.md lists the steps, and package providertest tests the promises below.
//
// # What a Cloud promises
//
// It makes calls and classifies their outcome, and decides nothing:
//
//   - One method, one call (a List as many as it has pages). No retries, no cache,
//     no waiting: the reconciler throttles and counts calls.
//   - Labels are part of the insert, since an instance without them has no owner.
//   - An accepted Insert is visible to Get at once. Inserts are idempotent: the
//     same RequestID is the same call, however often it is sent.
//   - ErrNotFound comes from the cloud and is about that very instance or operation.
//     A missing permission, a rate limit, an unreachable zone and a timeout are never
//     ErrNotFound.
//   - A List with gaps names them, in Unreachable or with Partial. An instance that a
//     complete list does not contain does not exist.
//   - IDs are unique for ever; names only while the instance exists.
//   - Calls end with their context. A lost response is ErrTransient with Unsure set:
//     the call may have taken effect.
//
// # What a Cloud may leave to the reconciler
//
// Retries, polling of operations, confirming absences, falling back to other zones,
// backoff after shortages and rate limits, the order of deletes and inserts, and
// ownership: the reconciler reads an instance before it deletes it, and compares
// UID, hash and ID.
//
// # Errors
//
// Every error is, or wraps, an *Error. Unclassified errors count as transient and
// unsure. The failures that matter most (no capacity, quota, a bad image) may be
// part of the operation alone: inspect its error itself, and not its HTTP status.
//
// ErrPermanent is for what the request asks for, and only where the cloud names the
// bad value. What the account, its project or another resource may change, and every
// code that is not known, is ErrRefused.
//
// # Secrets
//
// User data may contain passwords, and clouds echo what they refuse. No error text
// may contain it.
package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
)

// Cloud is one account at one cloud. Implementations are safe for concurrent use.
type Cloud interface {
	// Account names what one List covers, such as "gcp/PROJECT". Providers of the
	// same account share one list.
	Account() string
	// MaxInstances of this installation in the account; 0 means no limit.
	MaxInstances() int
	// ProviderID locates an instance, for the Proxy's status and for users.
	ProviderID(Ref) string
	// ParseProviderID is the inverse of ProviderID.
	ParseProviderID(string) (Ref, error)

	// Insert starts an instance and returns its operation. It returns ErrPermanent
	// without a call when the request cannot be built, and ErrAlreadyExists when the
	// name is taken in that zone.
	Insert(context.Context, InsertRequest) (Operation, error)
	// Get returns the instance, or ErrNotFound when its zone has none of that name.
	Get(context.Context, Ref) (Instance, error)
	// Delete starts the deletion of an instance in any state and returns its
	// operation, or ErrNotFound. Only Get and List show when the instance is gone.
	Delete(ctx context.Context, ref Ref, requestID string) (Operation, error)
	// Operation returns the state of an operation, or ErrNotFound when the provider
	// no longer keeps it.
	Operation(ctx context.Context, zone, name string) (Operation, error)
	// List returns all instances of this installation in the account, and the gaps.
	List(context.Context) (Listing, error)
}

// Ref locates an instance within an account.
type Ref struct {
	Zone string // of the instance
	Name string // of the instance, unique within its zone while it exists
}

// Instance as the provider returned it.
type Instance struct {
	Ref
	ID           string        // unique for ever, unlike the name
	UID          string        // of the Proxy, from its label. Without one the instance is not ours and must not be touched
	Installation string        // it belongs to, from its label
	SpecHash     string        // it was made with, from its label; may be empty
	Port         int32         // it was made for, from its label; 0 for none
	State        adapter.State // in the adapter's terms
	Leaving      bool          // it is being stopped or deleted, so that a delete would fail or have no effect
	Status       string        // in the provider's terms, for logs
	IP           string        // its public address; empty for none yet
	CreatedAt    time.Time     // when the provider made it, in UTC
}

// InsertRequest describes one instance to make.
type InsertRequest struct {
	Ref
	RequestID    string             // makes retries of this request idempotent. It is a random UUID for each decision to insert
	Installation string             // Installation label of the instance
	Want         adapter.PutRequest // the hook's request
}

// Operation is an accepted insert or delete.
type Operation struct {
	Zone     string // of the operation
	Name     string // of the operation
	Done     bool   // it has ended, successfully or with Err
	TargetID string // the ID of its instance, when known
	Err      error  // why it failed, nil otherwise. It is an *Error
}

// Listing is the result of List.
type Listing struct {
	Instances   []Instance      // of the installation, in no order
	Unreachable []string        // Unreachable zones, whose instances are unknown
	Partial     bool            // something is missing that the provider did not name. Only the Answered zones are known then
	Answered    map[string]bool // Answered zones are listed completely
}

// Covers reports whether the listing contains every instance of zone.
func (l *Listing) Covers(zone string) bool {
	return !slices.Contains(l.Unreachable, zone) && (!l.Partial || l.Answered[zone])
}

// Complete reports whether the listing has no gaps.
func (l *Listing) Complete() bool { return !l.Partial && len(l.Unreachable) == 0 }

// Classes of errors, by how the caller handles them.
var (
	ErrNotFound      = errors.New("not found")                    // the instance or operation does not exist. It is a result, not a failure
	ErrAlreadyExists = errors.New("already exists")               // the name is taken; read which instance has it. Without one, another resource has it: back off
	ErrQuotaExceeded = errors.New("quota exceeded")               // retry later, and show which quota
	ErrStockout      = errors.New("out of capacity")              // the zone has no capacity; fall back to another one, or retry later
	ErrRateLimited   = errors.New("rate limited")                 // back off with all calls
	ErrPermanent     = errors.New("permanent failure")            // the cloud names a value of the request that can never work; do not retry the same call
	ErrRefused       = errors.New("refused")                      // for a reason outside the request, or an unknown one; retry ever more slowly
	ErrTransient     = errors.New("transient failure")            // retry later
	ErrNotWriter     = errors.New("not the adapter that may act") // this adapter does not hold the lease. The call was not sent
)

// classes in the order in which Class looks for them.
var classes = []error{
	ErrNotWriter, ErrNotFound, ErrAlreadyExists, ErrQuotaExceeded,
	ErrStockout, ErrRateLimited, ErrPermanent, ErrRefused, ErrTransient,
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
	ErrRefused: adapter.FailureRefused, ErrAlreadyExists: adapter.FailureRefused,
}

// FailureClass is the class in the contract with the hooks.
func FailureClass(err error) adapter.FailureClass {
	if class, ok := failureClasses[Class(err)]; ok {
		return class
	}
	return adapter.FailureTransient
}
