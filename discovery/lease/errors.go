package lease

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrUnknown: no lease has that id. It was released or never granted, or it
	// expired longer ago than the store's cooldown, or was evicted by
	// Limits.Expired.
	ErrUnknown = errors.New("unknown lease")
	// ErrKeyReused: an active lease was granted under this Key to another request.
	ErrKeyReused = errors.New("idempotency key was used for another request")
	// ErrUnavailable: the store cannot persist anything now. Nothing was granted;
	// whether anything else was done is unknown, and a retry is safe.
	ErrUnavailable = errors.New("lease store unavailable")
)

// EndReason is why a lease cannot be used any more.
type EndReason string

const (
	// EndExpired: its TTL is over.
	EndExpired EndReason = "expired"
	// EndReplaced: the Proxy has another instance now.
	EndReplaced EndReason = "instance_replaced"
	// EndGone: the Proxy has no instance now.
	EndGone EndReason = "instance_gone"
	// EndDeleted: the Proxy no longer exists.
	EndDeleted EndReason = "proxy_deleted"
)

// EndedError means that the lease is known and cannot be used any more.
type EndedError struct {
	// Reason for it.
	Reason EndReason
	// Lease that ended. An expired one has no Session, TTL and GrantedAt.
	Lease Lease
}

// Error names the reason.
func (e *EndedError) Error() string {
	switch e.Reason {
	case EndExpired:
		return fmt.Sprintf("lease expired at %s", e.Lease.ExpiresAt.UTC().Format(time.RFC3339Nano))
	case EndReplaced:
		return fmt.Sprintf("the lease's instance of proxy %s was replaced by another", e.Lease.Proxy)
	case EndGone:
		return fmt.Sprintf("the lease's instance of proxy %s is gone", e.Lease.Proxy)
	case EndDeleted:
		return fmt.Sprintf("the lease's proxy %s was deleted", e.Lease.Proxy)
	}
	return "lease ended: " + string(e.Reason)
}

// Ended returns why a lease is unusable although it has not expired, "" when it is
// usable. now is the current offer of its Proxy, nil when the Proxy is gone.
func Ended(l Lease, now *Offer) EndReason {
	switch {
	case now == nil:
		return EndDeleted
	case now.Instance.ID == l.Instance.ID:
		return ""
	case now.Instance.ID == "":
		return EndGone
	}
	return EndReplaced
}

// NoMatchError means that no candidate can be leased now.
type NoMatchError struct {
	Stats
}

// Stats counts why. Every candidate is counted once: one that is in cooldown and at
// capacity counts as in cooldown.
type Stats struct {
	// Considered is the number of candidates, AtCapacity + InCooldown.
	Considered int
	// AtCapacity have no free slot.
	AtCapacity int
	// InCooldown for this target or for all.
	InCooldown int
	// CapacityFreeAt is when a slot of AtCapacity becomes free at the latest; zero
	// when none expires.
	CapacityFreeAt time.Time
	// CooldownEndsAt is when the first of InCooldown can be leased again; zero when
	// there is none.
	CooldownEndsAt time.Time
}

// Error lists the counts.
func (e *NoMatchError) Error() string {
	return fmt.Sprintf("no proxy to lease: %d considered, %d at capacity, %d in cooldown", e.Considered, e.AtCapacity, e.InCooldown)
}

// FreeAt is when a retry can succeed, zero when the store knows of no such time. A
// release can only make it sooner.
func (s Stats) FreeAt() time.Time { return earliest(s.CapacityFreeAt, s.CooldownEndsAt) }

// CountAtCapacity adds a candidate that has a free slot at freeAt; zero: none
// expires.
func (s *Stats) CountAtCapacity(freeAt time.Time) {
	s.AtCapacity++
	s.CapacityFreeAt = earliest(s.CapacityFreeAt, freeAt)
}

// CountInCooldown adds a candidate that can be leased again at freeAt.
func (s *Stats) CountInCooldown(freeAt time.Time) {
	s.InCooldown++
	s.CooldownEndsAt = earliest(s.CooldownEndsAt, freeAt)
}

// earliest returns the earlier of two times; zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

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
// in all), an expired lease about 300 (60 MB in all).
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
