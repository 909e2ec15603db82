// Package lease says what a lease on a proxy is: who may get one, in which
// order proxies are preferred, and which errors stores answer with. It holds
// no state; stores do.
package lease

import (
	"cmp"
	"math"
	"time"
)

// UnknownLatency is the latency of a proxy without a measurement. It sorts
// behind every measured one.
const UnknownLatency int64 = math.MaxInt64

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

// Candidate is a proxy that may be leased right now, as far as the fleet
// knows. Stores keep no pointer to it after the call.
type Candidate struct {
	Instance
	// Proxy is "namespace/name", the last tie-break.
	Proxy string
	// MaxLeases is how many leases the instance may have at once. 0: none.
	MaxLeases int
	// LatencyMillis of the last probe that counted, or UnknownLatency.
	LatencyMillis int64
}

// Compare orders candidates by preference: fewest running leases, then
// latency, then name. It is negative when a is preferred to b.
func Compare(a *Candidate, activeA int, b *Candidate, activeB int) int {
	return cmp.Or(
		cmp.Compare(activeA, activeB),
		cmp.Compare(a.LatencyMillis, b.LatencyMillis),
		cmp.Compare(a.Proxy, b.Proxy),
	)
}

// Request asks a store for one lease.
type Request struct {
	// Candidates to choose from. Shared and not to be changed.
	Candidates []*Candidate
	// Target is the site that the lease is for, normalised; "" for any.
	Target string
	// TTL is how long the lease runs, more than 0.
	TTL time.Duration
}

// Lease is the right to use one proxy until ExpiresAt.
type Lease struct {
	// ID is unguessable.
	ID string
	// Instance that the lease is held on.
	Instance Instance
	// Proxy is its "namespace/name".
	Proxy string
	// Target as in the Request.
	Target string
	// TTL as in the Request.
	TTL time.Duration
	// ExpiresAt is when the lease ends by itself. At that instant it no
	// longer counts.
	ExpiresAt time.Time
	// FencingToken grows with every grant of a store: of two holders of one
	// proxy, the one with the larger token came later.
	FencingToken uint64
}

// Usage is what a store holds at one moment.
type Usage struct {
	// Active counts the running leases of each instance that has any.
	Active map[Instance]int
	// CoolingUntil holds, by Proxy UID, when a cooldown for all targets ends.
	CoolingUntil map[string]time.Time
}

// Total is the number of running leases.
func (u Usage) Total() int {
	total := 0
	for _, n := range u.Active {
		total += n
	}
	return total
}
