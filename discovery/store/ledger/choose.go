package ledger

import (
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// matches reports whether the fleet offers the proxy for such a request.
func (g *Ledger) matches(e *entry, req lease.Request) bool {
	return e.Leasable && lease.HasAttributes(e.Attributes, req.Selector) && !slices.Contains(req.Exclude, e.Proxy)
}

// matching lists the proxies that the fleet offers for a request.
func (g *Ledger) matching(req lease.Request) []*entry {
	var out []*entry
	for _, e := range g.members(req.Selector) {
		if g.matches(e, req) {
			out = append(out, e)
		}
	}
	return out
}

// scan is choose without an index.
func (g *Ledger) scan(req lease.Request) *entry {
	var best *entry
	for _, e := range g.proxies {
		if !g.matches(e, req) || !e.free(req.Target) {
			continue
		}
		if best == nil || lease.Compare(e.standing(), best.standing()) < 0 {
			best = e
		}
	}
	return best
}

func (e *entry) standing() lease.Standing {
	return lease.Standing{Candidate: &e.Candidate, Active: len(e.held), LastGrant: e.since}
}

// explain says why none of these can be leased.
func (g *Ledger) explain(req lease.Request, matching ...*entry) lease.Stats {
	stats := lease.Stats{Considered: len(matching)}
	for _, e := range matching {
		room, cooled := e.roomAt(), e.coolsUntil(req.Target)
		switch {
		case cooled.IsZero():
			stats.CountAtCapacity(room)
		case e.MaxLeases <= 0:
			stats.CountInCooldown(time.Time{})
		default:
			stats.CountInCooldown(latest(room, cooled))
		}
	}
	return stats
}

// coolsUntil is when a proxy's cooldowns for this target and for all targets
// are over; zero when it has none.
func (e *entry) coolsUntil(target string) (until time.Time) {
	if len(e.cooling) == 0 {
		return until
	}
	for _, key := range []string{"", target} {
		if c := e.cooling[key]; c != nil {
			until = latest(until, c.at)
		}
	}
	return until
}

// roomAt is when enough of a proxy's leases have expired for one more; zero when
// there is room already, or never will be. More leases may run than maxLeases
// allows, when that was lowered.
func (e *entry) roomAt() time.Time {
	over := len(e.held) - e.MaxLeases
	if e.MaxLeases <= 0 || over < 0 {
		return time.Time{}
	}
	running := e.held
	if over == 0 { // as nearly always
		first := running[0].ExpiresAt
		for _, h := range running[1:] {
			if h.ExpiresAt.Before(first) {
				first = h.ExpiresAt
			}
		}
		return first
	}
	ends := make([]time.Time, 0, len(running))
	for _, h := range running {
		ends = append(ends, h.ExpiresAt)
	}
	slices.SortFunc(ends, time.Time.Compare)
	return ends[over]
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
