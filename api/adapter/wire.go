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
	"fmt"
	"log/slog"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// State of an instance, as last observed.
type State string

// States of an instance.
const (
	// StateAbsent: there is none. In a response to DELETE this is confirmed.
	StateAbsent State = "Absent"
	// StateProvisioning: it is being made, or it runs and has no address yet.
	StateProvisioning State = "Provisioning"
	// StateRunning: it runs and has an address.
	StateRunning State = "Running"
	// StateStopping: it is being stopped or deleted.
	StateStopping State = "Stopping"
	// StateStopped: it exists and does not run.
	StateStopped State = "Stopped"
)

// Action is what the adapter does to reach the desired state.
type Action string

// Actions of the adapter.
const (
	// ActionNone: nothing to do, or waiting because of a Failure.
	ActionNone Action = "None"
	// ActionInserting: an instance is being made.
	ActionInserting Action = "Inserting"
	// ActionDeleting: an instance is being deleted.
	ActionDeleting Action = "Deleting"
)

// FailureClass is the kind of a failure, which decides about retries.
type FailureClass string

// Classes of failures.
const (
	// FailureQuotaExceeded: retried later; a quota may have to be raised.
	FailureQuotaExceeded FailureClass = "QuotaExceeded"
	// FailureStockout: retried later; the zone has no such machine now.
	FailureStockout FailureClass = "Stockout"
	// FailurePermanent: not retried; the same request would fail again.
	FailurePermanent FailureClass = "Permanent"
	// FailureTransient: retried with backoff.
	FailureTransient FailureClass = "Transient"
)

// PutRequest is the body of PUT: the desired instance.
type PutRequest struct {
	// UID of the Proxy. A label of the instance with it proves ownership.
	UID string `json:"uid"`
	// Namespace of the Proxy.
	Namespace string `json:"namespace"`
	// Proxy is the Proxy's name.
	Proxy string `json:"proxy"`
	// SpecHash of the desired spec, a label of an instance made from this request.
	// An existing instance is kept whatever its hash.
	SpecHash string `json:"specHash"`
	// Generation of the Proxy's spec, optional. A permanent failure is not retried
	// for the same hash and generation.
	Generation int64 `json:"generation,omitempty"`
	// Port that the proxy listens on.
	Port int32 `json:"port"`
	// Placement is the zone, the machine type and the image.
	Placement v1alpha1.Placement `json:"placement"`
	// UserData that the instance boots with. It may contain secrets and is never
	// returned or logged.
	UserData string `json:"userData,omitempty"`
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
	// State as last observed.
	State State `json:"state"`
	// Action in flight, or due next.
	Action Action `json:"action"`
	// ProviderID locates the instance, such as zones/ZONE/instances/NAME.
	ProviderID string `json:"providerID,omitempty"`
	// InstanceID identifies it across replacements of the same name.
	InstanceID string `json:"instanceID,omitempty"`
	// IP is its public address.
	IP string `json:"ip,omitempty"`
	// Port from the instance's label, which after an edit differs from the desired
	// one; 0 without the label.
	Port int32 `json:"port,omitempty"`
	// SpecHash from the instance's label; empty without it.
	SpecHash string `json:"specHash,omitempty"`
	// CreatedAt is when the provider made it, in UTC.
	CreatedAt *time.Time `json:"createdAt,omitempty"`
	// Failure is why the desired state is not reached, nil for none.
	Failure *Failure `json:"failure,omitempty"`
}

// Failure is why the desired state is not reached.
type Failure struct {
	// Class decides about retries.
	Class FailureClass `json:"class"`
	// Message is for users and never contains user data.
	Message string `json:"message"`
	// RetryAfterSeconds until the next retry; 0 for none.
	RetryAfterSeconds int64 `json:"retryAfterSeconds,omitempty"`
}

// List is the response to GET: the adapter's whole cache.
type List struct {
	// Providers in the order of the provider config.
	Providers []Provider `json:"providers"`
	// Instances ordered by name.
	Instances []ListedInstance `json:"instances"`
}

// Provider is the state of one provider.
type Provider struct {
	// Name in the provider config.
	Name string `json:"name"`
	// Type in the provider config, such as gcp.
	Type string `json:"type"`
	// ListedAt is when the last successful list of its instances began, nil for
	// none.
	ListedAt *time.Time `json:"listedAt,omitempty"`
	// UnreachableZones of the last list.
	UnreachableZones []string `json:"unreachableZones,omitempty"`
	// Message is the last list's error, empty when it succeeded.
	Message string `json:"message,omitempty"`
}

// ListedInstance is one instance that was requested, or that a list contained.
type ListedInstance struct {
	// Name of the instance.
	Name string `json:"name"`
	// Provider of its requests; empty without a request.
	Provider string `json:"provider,omitempty"`
	// UID of its Proxy.
	UID string `json:"uid"`
	Instance
}

// ErrorBody is the body of every response that is not 200.
type ErrorBody struct {
	// Error is one of the Code constants.
	Error string `json:"error"`
	// Message is what is wrong, where, and what to do.
	Message string `json:"message"`
}

// Codes of ErrorBody.
const (
	// CodeInvalid: the request is malformed or exceeds a bound (400).
	CodeInvalid = "invalid_request"
	// CodeTooLarge: the body exceeds MaxBodyBytes (413).
	CodeTooLarge = "too_large"
	// CodeMediaType: the body is not declared as application/json (415).
	CodeMediaType = "unsupported_media_type"
	// CodeUnknownProvider: the provider config has no such provider (404).
	CodeUnknownProvider = "unknown_provider"
	// CodeNotFound: there is no such route (404).
	CodeNotFound = "not_found"
	// CodeMethod: the route has other methods (405).
	CodeMethod = "method_not_allowed"
	// CodeDeleted: this UID has a tombstone of an earlier DELETE (409).
	CodeDeleted = "deleted"
	// CodeConflict: the name belongs to another provider's instance (409).
	CodeConflict = "conflict"
	// CodeNotReady: the state is not known yet (503, with Retry-After).
	CodeNotReady = "not_ready"
	// CodeInternal: a defect of the adapter (500).
	CodeInternal = "internal"
)
