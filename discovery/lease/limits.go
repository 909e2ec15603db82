package lease

import (
	"fmt"
	"time"
)

// Limits bound what clients can make a store keep: without them, one client with a
// new session or target in each request fills the memory and the disk. Everything
// else is bounded by the size of the fleet.
type Limits struct {
	// Sessions is the most sessions of one Holder.
	Sessions int
	// TargetsPerProxy is the most targets that one Proxy cools down for.
	TargetsPerProxy int
	// Targets is the most cooldowns for single targets of all Proxies together.
	Targets int
	// Expired is the most expired leases that still accept reports, of all Holders.
	// The lease that expired first is evicted first.
	Expired int
}

// DefaultLimits are far above what crawlers need, and fit a process with 512 MiB. A
// session takes about 400 bytes (40 MB for each token), a cooldown about 250 (125 MB
// in all), an expired lease about 275 (55 MB in all).
var DefaultLimits = Limits{Sessions: 100_000, TargetsPerProxy: 10_000, Targets: 500_000, Expired: 200_000}

// Limit names one of Limits.
type Limit string

// Limits that can be reached; expired leases are evicted instead.
const (
	LimitSessions        Limit = "sessions of the token"
	LimitTargetsPerProxy Limit = "targets in cooldown on the proxy"
	LimitTargets         Limit = "targets in cooldown on all proxies"
)

// LimitError means that no other session or cooldown can be kept. None is evicted:
// a session keeps its proxy, and a reported proxy keeps its cooldown.
type LimitError struct {
	// Limit that is reached.
	Limit Limit
	// Most is its value.
	Most int
	// FreeAt is when the first session or cooldown ends by itself.
	FreeAt time.Time
}

// Error names the limit.
func (e *LimitError) Error() string {
	return fmt.Sprintf("limit reached: %d %s", e.Most, e.Limit)
}
