// Package lease is the contract of lease stores: a Request asks for a Lease on one
// of the proxies that an Offer describes, reports start cooldowns, and errors say
// why there is no lease. The package holds no state; stores do.
package lease

import (
	"slices"
	"time"
)

// Instance is what a lease is held on: one running instance of one Proxy. A
// replacement is another Instance and starts without leases, and so does a Proxy
// re-created under its old name. Host and port are no identity: two Proxies may
// share them and differ in credentials.
type Instance struct {
	// ProxyUID is the UID of the Proxy object. Cooldowns are keyed by it alone.
	ProxyUID string
	// ID is the Proxy's status.instanceID.
	ID string
}

// Request asks a store for one lease.
type Request struct {
	// Selector holds attributes that the proxy must have with these values.
	// Empty: any proxy.
	Selector map[string]string
	// Exclude lists proxies, as "namespace/name", that must not be chosen.
	Exclude []string
	// Schemes of proxies that the client can speak to, sorted, each once. Empty: any.
	Schemes []string
	// Target is the site that the lease is for, normalised; "" for any.
	Target string
	// TTL of the lease, more than 0.
	TTL time.Duration
	// Holder is the name of the client's token. Sessions and Keys of different
	// holders are independent.
	Holder string
	// Session is sticky: leases of one session go to the proxy that the session was
	// last granted, while that is offered as the same instance, matches, is of one of
	// the Schemes, is not excluded and is not in cooldown for the target. When that proxy only has no
	// free slot the request is refused: a session that moved would show its cookies
	// from another address. "" asks for none.
	Session string
	// Key makes the request idempotent: while the lease granted under it is active,
	// the same request returns that lease. It is the client's Idempotency-Key, ""
	// for none.
	Key string
	// Fingerprint is a digest of the request as the client sent it. Under one Key,
	// another Fingerprint is refused with ErrKeyReused.
	Fingerprint string
}

// Matches reports whether a proxy fits the Selector and the Schemes.
func (r Request) Matches(attributes map[string]string, scheme string) bool {
	return HasAttributes(attributes, r.Selector) && r.Speaks(scheme)
}

// Speaks reports whether the client can speak to proxies of this scheme.
func (r Request) Speaks(scheme string) bool {
	return len(r.Schemes) == 0 || slices.Contains(r.Schemes, scheme)
}

// Lease is the right to use one proxy until ExpiresAt.
type Lease struct {
	// ID is unguessable.
	ID string
	// Instance that the lease is held on.
	Instance Instance
	// Proxy is its "namespace/name".
	Proxy string
	// Holder, Session and Target as in the Request.
	Holder, Session, Target string
	// TTL that was last granted.
	TTL time.Duration
	// GrantedAt is when the lease was acquired.
	GrantedAt time.Time
	// ExpiresAt is when the lease expires. At that instant it no longer counts.
	ExpiresAt time.Time
	// FencingToken grows with every grant of a store: of two holders of one
	// proxy, the one with the larger token came later. Renewals keep it.
	FencingToken uint64
	// Replayed: Acquire found the lease by its Key instead of granting one.
	Replayed bool
	// Ended is set by Store.List alone: why the lease cannot be used although it has
	// not expired, "" when it can.
	Ended EndReason
}

// SessionIdle is how long a session is kept after the end of its last lease.
const SessionIdle = 10 * time.Minute

// Usage is what a store holds at one moment.
type Usage struct {
	// Revision changes whenever anything in the store does.
	Revision uint64
	// Active counts the active leases of each instance that has any.
	Active map[Instance]int
	// CoolingUntil is when a cooldown for all targets ends, by Proxy UID.
	CoolingUntil map[string]time.Time
	// Sessions and Cooldowns count what is kept now.
	Sessions, Cooldowns int
	// Expired counts the expired leases that still accept reports.
	Expired int
}

// Total is the number of active leases.
func (u Usage) Total() int {
	total := 0
	for _, n := range u.Active {
		total += n
	}
	return total
}
