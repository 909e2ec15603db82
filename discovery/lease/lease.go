// Package lease says what a lease on a proxy is: who may get one, in which
// order proxies are preferred, what reports do, and which errors stores answer
// with. It holds no state; stores do.
package lease

import "time"

// Instance is what a lease is held on: one running instance of one Proxy. A
// replaced instance is another Instance and starts with no leases, and so does
// a Proxy re-created under its old name. Host and port are no identity: two
// Proxies may share them and differ in credentials.
type Instance struct {
	// ProxyUID is the UID of the Proxy object. Cooldowns belong to it alone.
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
	// Target is the site that the lease is for, normalised; "" for any.
	Target string
	// TTL is how long the lease runs, more than 0.
	TTL time.Duration
	// Holder names who asks: the client's token. Sessions and Keys of
	// different holders have nothing to do with each other.
	Holder string
	// Session makes leases of one session go to one proxy: the one that the
	// session was last granted, for as long as that is offered as the same
	// instance, matches, is not excluded and does not cool for the target.
	// When it is merely full the request is refused: a session that moved
	// would show its cookies from another address. "" asks for none.
	Session string
	// Key, when it is not "", makes the request repeatable: while the lease
	// runs that it was granted, the same request gets that lease again. It is
	// the client's Idempotency-Key.
	Key string
	// Fingerprint is a digest of the request as the client sent it. Under one
	// Key, another Fingerprint is refused with ErrKeyReused.
	Fingerprint string
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
	// ExpiresAt is when the lease ends by itself. At that instant it no
	// longer counts.
	ExpiresAt time.Time
	// FencingToken grows with every grant of a store: of two holders of one
	// proxy, the one with the larger token came later. Renewals keep it.
	FencingToken uint64
	// Replayed: Acquire found the lease by its Key instead of granting one.
	Replayed bool
}

// SessionIdle is for how long after the end of its last lease a session is
// remembered.
const SessionIdle = 10 * time.Minute

// Usage is what a store holds at one moment.
type Usage struct {
	// Revision changes whenever anything in the store does.
	Revision uint64
	// Active counts the running leases of each instance that has any.
	Active map[Instance]int
	// CoolingUntil holds, by Proxy UID, when a cooldown for all targets ends.
	CoolingUntil map[string]time.Time
	// Sessions is how many are remembered, Cooldowns how many are under way,
	// for one target or for all.
	Sessions, Cooldowns int
	// Expired is how many leases are remembered that have expired.
	Expired int
}

// Total is the number of running leases.
func (u Usage) Total() int {
	total := 0
	for _, n := range u.Active {
		total += n
	}
	return total
}
