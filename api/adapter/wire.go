package adapter

import (
	"fmt"
	"log/slog"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// State is what an instance is, as last observed.
type State string

// States of an instance.
const (
	// StateAbsent: there is none. In an answer to DELETE it is confirmed.
	StateAbsent State = "Absent"
	// StateProvisioning: it is on its way, or it runs and has no address yet.
	StateProvisioning State = "Provisioning"
	// StateRunning: it runs and has an address.
	StateRunning State = "Running"
	// StateStopping: it is on its way out.
	StateStopping State = "Stopping"
	// StateStopped: it exists and does not run.
	StateStopped State = "Stopped"
)

// Action is what the adapter is doing about the difference between what is and
// what should be.
type Action string

// Actions of the adapter.
const (
	// ActionNone: nothing to do, or waiting; a Failure says for what.
	ActionNone Action = "None"
	// ActionInserting: an instance is being made.
	ActionInserting Action = "Inserting"
	// ActionDeleting: an instance is being deleted.
	ActionDeleting Action = "Deleting"
)

// FailureClass says what a failure asks for.
type FailureClass string

// Classes of failures.
const (
	// FailureQuotaExceeded: wait; somebody may have to raise a quota.
	FailureQuotaExceeded FailureClass = "QuotaExceeded"
	// FailureStockout: wait; the zone has no such machine now.
	FailureStockout FailureClass = "Stockout"
	// FailurePermanent: the same request will fail again.
	FailurePermanent FailureClass = "Permanent"
	// FailureTransient: the adapter tries again by itself.
	FailureTransient FailureClass = "Transient"
)

// PutRequest is the body of PUT: which instance should be.
type PutRequest struct {
	// UID of the Proxy. The instance carries it as its proof of ownership.
	UID string `json:"uid"`
	// Namespace of the Proxy.
	Namespace string `json:"namespace"`
	// Proxy is the Proxy's name.
	Proxy string `json:"proxy"`
	// SpecHash is the wanted hash. An instance made from this request carries
	// it; one that is there already is kept whatever its hash.
	SpecHash string `json:"specHash"`
	// Generation of the Proxy's spec, optional. A permanent failure is not
	// tried again for the same hash and generation.
	Generation int64 `json:"generation,omitempty"`
	// Port that the proxy shall listen on.
	Port int32 `json:"port"`
	// Placement says where and on what.
	Placement v1alpha1.Placement `json:"placement"`
	// UserData is what the instance boots with. It may hold secrets and is
	// never shown again.
	UserData string `json:"userData,omitempty"`
	// Replace is the id of the instance to be got rid of, empty for none. An
	// instance with another id is kept.
	Replace string `json:"replace,omitempty"`
}

// String leaves the user data out, so that no log or error shows it.
func (r PutRequest) String() string {
	return fmt.Sprintf("Proxy %s/%s (uid %s, hash %s, %d bytes of user data)", r.Namespace, r.Proxy, r.UID, r.SpecHash, len(r.UserData))
}

// GoString is String, for %#v.
func (r PutRequest) GoString() string { return r.String() }

// LogValue is String, for slog's JSON.
func (r PutRequest) LogValue() slog.Value { return slog.StringValue(r.String()) }

// Instance is the answer to PUT and DELETE: what is.
type Instance struct {
	// State as last observed.
	State State `json:"state"`
	// Action under way.
	Action Action `json:"action"`
	// ProviderID locates the instance, such as zones/ZONE/instances/NAME.
	ProviderID string `json:"providerID,omitempty"`
	// InstanceID identifies it across replacements of the same name.
	InstanceID string `json:"instanceID,omitempty"`
	// IP is its public address.
	IP string `json:"ip,omitempty"`
	// Port is the instance's own label, which after an edit is not the wanted
	// one; 0 when it carries none.
	Port int32 `json:"port,omitempty"`
	// SpecHash is the instance's own label; empty when it carries none.
	SpecHash string `json:"specHash,omitempty"`
	// CreatedAt is when the provider made it, in UTC.
	CreatedAt *time.Time `json:"createdAt,omitempty"`
	// Failure is why the wanted state is not reached, nil when all is well.
	Failure *Failure `json:"failure,omitempty"`
}

// Failure is why the wanted state is not reached.
type Failure struct {
	// Class says what it asks for.
	Class FailureClass `json:"class"`
	// Message is for people and never holds user data.
	Message string `json:"message"`
	// RetryAfterSeconds is when the adapter tries next; 0 when it does not.
	RetryAfterSeconds int64 `json:"retryAfterSeconds,omitempty"`
}

// List is the answer to GET: everything that the adapter knows.
type List struct {
	// Providers in the order of the provider config.
	Providers []Provider `json:"providers"`
	// Instances ordered by name.
	Instances []ListedInstance `json:"instances"`
}

// Provider is what the adapter knows about one provider.
type Provider struct {
	// Name in the provider config.
	Name string `json:"name"`
	// Type in the provider config, such as gcp.
	Type string `json:"type"`
	// ListedAt is when the last good list of its instances began, nil when
	// there was none.
	ListedAt *time.Time `json:"listedAt,omitempty"`
	// UnreachableZones did not answer the last list.
	UnreachableZones []string `json:"unreachableZones,omitempty"`
	// Message is the last list's error, empty when it succeeded.
	Message string `json:"message,omitempty"`
}

// ListedInstance is one instance that the adapter was asked for or has found.
type ListedInstance struct {
	// Name of the instance.
	Name string `json:"name"`
	// Provider that was asked for it; empty for one that nobody asked for.
	Provider string `json:"provider,omitempty"`
	// UID of its Proxy.
	UID string `json:"uid"`
	Instance
}

// ErrorBody is the body of every answer that is not 200.
type ErrorBody struct {
	// Error is one of the Code constants.
	Error string `json:"error"`
	// Message says what was wrong, where, and what to do.
	Message string `json:"message"`
}

// Codes of ErrorBody.
const (
	// CodeInvalid: the request cannot be understood or breaks a bound (400).
	CodeInvalid = "invalid_request"
	// CodeTooLarge: the body exceeds MaxBodyBytes (413).
	CodeTooLarge = "too_large"
	// CodeMediaType: the body is not declared as application/json (415).
	CodeMediaType = "unsupported_media_type"
	// CodeUnknownProvider: the provider config has no such provider (404).
	CodeUnknownProvider = "unknown_provider"
	// CodeNotFound: there is no such route (404).
	CodeNotFound = "not_found"
	// CodeMethod: the route knows other methods (405).
	CodeMethod = "method_not_allowed"
	// CodeDeleted: a DELETE came for this UID before, so it is gone for good
	// (409).
	CodeDeleted = "deleted"
	// CodeConflict: the name belongs to another provider's instance (409).
	CodeConflict = "conflict"
	// CodeNotReady: the answer is not known yet (503, with Retry-After).
	CodeNotReady = "not_ready"
	// CodeInternal: a defect of the adapter (500).
	CodeInternal = "internal"
)
