// Package adapter is the contract between the hooks and the cloud adapter: the wire
// types, their strict codec and the client.
//
// The adapter is level-triggered. PUT sets which instance is desired, DELETE that
// none is. Both return the observed instance from the adapter's cache, which
// reconciles in the background. They are idempotent: callers retry them until the
// observed state is the desired one.
//
//	PUT    /v1/instances/{provider}/{name}                    -> Instance
//	DELETE /v1/instances/{provider}/{name}?uid=&providerID=   -> Instance
//	GET    /v1/instances                                      -> List
//
// Every other status than 200 carries an ErrorBody. 503 with Retry-After means that
// the state is not known yet: the adapter has not listed that provider, or another
// adapter holds the lease.
package adapter

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// State of an instance, as last observed.
type State string

// States of an instance.
const (
	StateAbsent       State = "Absent"       // there is none. In a response to DELETE this is confirmed
	StateProvisioning State = "Provisioning" // it is being made, or it runs and has no address yet
	StateRunning      State = "Running"      // it runs and has an address
	StateStopping     State = "Stopping"     // it is being stopped or deleted
	StateStopped      State = "Stopped"      // it exists and does not run
)

// Action is what the adapter does to reach the desired state.
type Action string

// Actions of the adapter.
const (
	ActionNone      Action = "None"      // nothing to do, or waiting because of a Failure
	ActionInserting Action = "Inserting" // an instance is being made
	ActionDeleting  Action = "Deleting"  // an instance is being deleted
)

// FailureClass is the kind of a failure, which decides about retries.
type FailureClass string

// Classes of failures.
const (
	FailureQuotaExceeded FailureClass = "QuotaExceeded" // retried later; a quota may have to be raised
	FailureStockout      FailureClass = "Stockout"      // retried later; the zone has no such machine now
	FailurePermanent     FailureClass = "Permanent"     // not retried; the cloud names a value of the spec that can never work
	FailureRefused       FailureClass = "Refused"       // retried ever more slowly: permission, policy, billing, a taken name, an unknown code
	FailureTransient     FailureClass = "Transient"     // retried with backoff
)

// PutRequest is the body of PUT: the desired instance.
type PutRequest struct {
	UID       string `json:"uid"`       // of the Proxy. A label of the instance with it proves ownership
	Namespace string `json:"namespace"` // of the Proxy
	Proxy     string `json:"proxy"`     // the Proxy's name
	// SpecHash of the desired spec, a label of an instance made from this request.
	// An existing instance is kept whatever its hash.
	SpecHash string `json:"specHash"`
	// Generation of the Proxy's spec, optional. A permanent failure is not retried
	// for the same hash and generation.
	Generation int64              `json:"generation,omitempty"`
	Port       int32              `json:"port"`               // that the proxy listens on
	Placement  v1alpha1.Placement `json:"placement"`          // the zone, the machine type and the image
	UserData   string             `json:"userData,omitempty"` // that the instance boots with. It may contain secrets and is never returned or logged
	// Replace is the id of the instance to delete and make again, empty for none.
	// An instance with another id is kept.
	Replace string `json:"replace,omitempty"`
}

// String omits the user data, so that no log or error contains it.
func (r PutRequest) String() string {
	return fmt.Sprintf("Proxy %s/%s (uid %s, hash %s, %d bytes of user data)", r.Namespace, r.Proxy, r.UID, r.SpecHash, len(r.UserData))
}

// GoString is String, for %#v.
func (r PutRequest) GoString() string { return r.String() }

// LogValue is String, for slog's JSON.
func (r PutRequest) LogValue() slog.Value { return slog.StringValue(r.String()) }

// Instance is the response to PUT and DELETE: the observed instance.
type Instance struct {
	State      State  `json:"state"`                // as last observed
	Action     Action `json:"action"`               // in flight, or due next
	ProviderID string `json:"providerID,omitempty"` // locates the instance, such as zones/ZONE/instances/NAME
	InstanceID string `json:"instanceID,omitempty"` // identifies it across replacements of the same name
	IP         string `json:"ip,omitempty"`         // its public address
	// Port from the instance's label, which after an edit differs from the desired
	// one; 0 without the label.
	Port      int32      `json:"port,omitempty"`
	SpecHash  string     `json:"specHash,omitempty"`  // from the instance's label; empty without it
	CreatedAt *time.Time `json:"createdAt,omitempty"` // when the provider made it, in UTC
	Failure   *Failure   `json:"failure,omitempty"`   // why the desired state is not reached, nil for none
}

// Failure is why the desired state is not reached.
type Failure struct {
	Class             FailureClass `json:"class"`                       // decides about retries
	Message           string       `json:"message"`                     // for users and never contains user data
	RetryAfterSeconds int64        `json:"retryAfterSeconds,omitempty"` // until the next retry; 0 for none
}

// List is the response to GET: the adapter's whole cache.
type List struct {
	Providers []Provider       `json:"providers"` // in the order of the provider config
	Instances []ListedInstance `json:"instances"` // ordered by name
}

// Provider is the state of one provider.
type Provider struct {
	Name             string     `json:"name"`                       // in the provider config
	Type             string     `json:"type"`                       // in the provider config, such as gcp
	ListedAt         *time.Time `json:"listedAt,omitempty"`         // when the last successful list of its instances began, nil for none
	UnreachableZones []string   `json:"unreachableZones,omitempty"` // of the last list
	Message          string     `json:"message,omitempty"`          // the last list's error, empty when it succeeded
}

// ListedInstance is one instance that was requested, or that a list contained.
type ListedInstance struct {
	Name     string `json:"name"`               // of the instance
	Provider string `json:"provider,omitempty"` // of its requests; empty without a request
	UID      string `json:"uid"`                // of its Proxy
	Instance
}

// ErrorBody is the body of every response that is not 200.
type ErrorBody struct {
	Error   string `json:"error"`   // one of the Code constants
	Message string `json:"message"` // what is wrong, where, and what to do
}

// Codes of ErrorBody.
const (
	CodeInvalid         = "invalid_request"        // the request is malformed or exceeds a bound (400)
	CodeTooLarge        = "too_large"              // the body exceeds MaxBodyBytes (413)
	CodeMediaType       = "unsupported_media_type" // the body is not declared as application/json (415)
	CodeUnknownProvider = "unknown_provider"       // the provider config has no such provider (404)
	CodeNotFound        = "not_found"              // there is no such route (404)
	CodeMethod          = "method_not_allowed"     // the route has other methods (405)
	CodeDeleted         = "deleted"                // this UID has a tombstone of an earlier DELETE (409)
	CodeConflict        = "conflict"               // the name belongs to another provider's instance (409)
	CodeNotReady        = "not_ready"              // the state is not known yet (503, with Retry-After)
	CodeInternal        = "internal"               // a defect of the adapter (500)
)

// Classes of errors, the same on both sides of the socket: the client returns the
// class that the adapter's reconciler returned.
var (
	ErrInvalid         = errors.New("invalid request")                                    // the request is refused and must not be retried
	ErrUnknownProvider = errors.New("unknown provider")                                   // the adapter's provider config has no such provider
	ErrDeleted         = errors.New("it has been deleted, and UIDs are never used again") // this UID has a tombstone of an earlier DELETE
	ErrConflict        = fmt.Errorf("%w: another provider's instance", ErrInvalid)        // the UID belongs to another provider. It is also an ErrInvalid
	ErrNotReady        = errors.New("cloud adapter not ready")                            // the adapter has not cached the instance's state yet
	ErrUnavailable     = errors.New("cloud adapter unavailable")                          // no response, or an invalid one. The instance's state is unknown
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
