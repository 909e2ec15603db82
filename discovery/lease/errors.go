package lease

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrUnknown: no lease has that id, it was released, or it expired longer
	// ago than the cooldown window, or than Limits.Expired others.
	ErrUnknown = errors.New("unknown lease")
	// ErrKeyReused: a running lease was granted under this Key, to another
	// request.
	ErrKeyReused = errors.New("idempotency key was used for another request")
	// ErrUnavailable: the store cannot keep what it is told now. Nothing was
	// granted; whether anything else was done is not known, and asking again
	// is safe.
	ErrUnavailable = errors.New("lease store unavailable")
)

// EndReason says why a lease leads nowhere.
type EndReason string

const (
	// EndExpired: its time is over.
	EndExpired EndReason = "expired"
	// EndReplaced: the Proxy has another instance now.
	EndReplaced EndReason = "instance_replaced"
	// EndGone: the Proxy has no instance now.
	EndGone EndReason = "instance_gone"
	// EndDeleted: the Proxy does not exist any more.
	EndDeleted EndReason = "proxy_deleted"
)

// EndedError says that the lease is known and cannot be used any more.
type EndedError struct {
	// Reason for it.
	Reason EndReason
	// Lease that ended. Of one that has expired, Session, TTL and GrantedAt
	// are not kept.
	Lease Lease
}

// Error says why.
func (e *EndedError) Error() string {
	switch e.Reason {
	case EndExpired:
		return fmt.Sprintf("lease expired at %s", e.Lease.ExpiresAt.UTC().Format(time.RFC3339Nano))
	case EndReplaced:
		return fmt.Sprintf("the instance of proxy %s that the lease was granted on was replaced by another", e.Lease.Proxy)
	case EndGone:
		return fmt.Sprintf("the instance of proxy %s that the lease was granted on is gone", e.Lease.Proxy)
	case EndDeleted:
		return fmt.Sprintf("proxy %s that the lease was granted on was deleted", e.Lease.Proxy)
	}
	return "lease ended: " + string(e.Reason)
}

// Ended says why a lease leads nowhere although its time is not over: what the
// fleet offers for its Proxy now, nil when that does not exist, is not what it
// was granted on. "" when it does.
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

// NoMatchError says that no candidate can be leased now.
type NoMatchError struct {
	Stats
}

// Stats says why. Every candidate is counted once: one that cools and is at
// capacity too counts as cooling.
type Stats struct {
	// Considered is the number of candidates, AtCapacity + InCooldown.
	Considered int
	// AtCapacity have all their leases out.
	AtCapacity int
	// InCooldown rest after a report for this target or for all.
	InCooldown int
	// CapacityFreeAt is when the first of AtCapacity has room again, at the
	// latest; zero when none will by itself.
	CapacityFreeAt time.Time
	// CooldownEndsAt is when the first of InCooldown may be leased again;
	// zero when there is none.
	CooldownEndsAt time.Time
}

// Error lists the counts.
func (e *NoMatchError) Error() string {
	return fmt.Sprintf("no proxy to lease: %d considered, %d at capacity, %d in cooldown", e.Considered, e.AtCapacity, e.InCooldown)
}

// FreeAt is the earliest moment at which another try can succeed, zero when
// the store knows of none. An early release can only make it sooner.
func (s Stats) FreeAt() time.Time {
	return earliest(s.CapacityFreeAt, s.CooldownEndsAt)
}

// CountAtCapacity adds a candidate that has room again at freeAt (zero: not by
// itself).
func (s *Stats) CountAtCapacity(freeAt time.Time) {
	s.AtCapacity++
	s.CapacityFreeAt = earliest(s.CapacityFreeAt, freeAt)
}

// CountInCooldown adds a candidate that may be leased again at freeAt.
func (s *Stats) CountInCooldown(freeAt time.Time) {
	s.InCooldown++
	s.CooldownEndsAt = earliest(s.CooldownEndsAt, freeAt)
}

// earliest returns the earlier of two times, of which zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
