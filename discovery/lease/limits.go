package lease

import (
	"fmt"
	"time"
)

// Limits bound what a store keeps of names that clients make up: without them,
// one client with a new name for each request fills the memory, and the disk.
// What a client has no say in is bounded by the fleet. Leases that have expired are,
// too, since short ones leave any number behind.
type Limits struct {
	// Sessions is how many sessions of one Holder are remembered at once.
	Sessions int
	// TargetsPerProxy is for how many targets one Proxy cools at once.
	TargetsPerProxy int
	// Targets is for how many targets all Proxies together cool at once.
	Targets int
	// Expired is how many leases that have expired are remembered, of all
	// Holders. The first to have expired gives way to the next: reports on it
	// are no longer taken.
	Expired int
}

// DefaultLimits are far above what crawlers do, and low enough for a process
// with 512 MiB. A session takes about 400 bytes, which makes 40 MB of them for
// each token; a cooldown takes about 250, which makes 125 MB of them all; a lease
// that has expired takes about 275, which makes 55 MB.
func DefaultLimits() Limits {
	return Limits{Sessions: 100_000, TargetsPerProxy: 10_000, Targets: 500_000, Expired: 200_000}
}

// Or returns l, or other when l is the zero value.
func (l Limits) Or(other Limits) Limits {
	if l == (Limits{}) {
		return other
	}
	return l
}

// Limit names one of Limits.
type Limit string

// What may be full.
const (
	LimitSessions        Limit = "sessions of the token"
	LimitTargetsPerProxy Limit = "targets that the proxy rests for"
	LimitTargets         Limit = "targets that all proxies rest for"
)

// LimitError says that there is no room for another session or cooldown. What there is
// never gives way: a session that was promised its proxy keeps it, and a proxy
// that was reported rests.
type LimitError struct {
	// Limit that is reached.
	Limit Limit
	// Most of them that are kept.
	Most int
	// FreeAt is when the first of them ends by itself.
	FreeAt time.Time
}

// Error says what is full.
func (e *LimitError) Error() string {
	return fmt.Sprintf("%d %s are kept at the most, and there is no room for another", e.Most, e.Limit)
}
