package lease

import (
	"errors"
	"fmt"
	"time"
)

// ErrUnknown: no lease has that id, or it ended longer ago than the cooldown
// window.
var ErrUnknown = errors.New("unknown lease")

// NoMatchError: no candidate can be leased now.
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
