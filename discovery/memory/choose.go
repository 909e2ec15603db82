package memory

import (
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// choose returns the preferred candidate that can be leased, nil when there is
// none.
func (s *Store) choose(req lease.Request) *lease.Candidate {
	var best *lease.Candidate
	bestActive := 0
	for _, c := range req.Candidates {
		active := len(s.running[c.Instance])
		if active >= c.MaxLeases || !s.coolsUntil(c.ProxyUID, req.Target).IsZero() {
			continue
		}
		if best == nil || lease.Compare(c, active, best, bestActive) < 0 {
			best, bestActive = c, active
		}
	}
	return best
}

// explain says why choose found none.
func (s *Store) explain(req lease.Request) lease.Stats {
	stats := lease.Stats{Considered: len(req.Candidates)}
	for _, c := range req.Candidates {
		room, cooled := s.roomAt(c), s.coolsUntil(c.ProxyUID, req.Target)
		switch {
		case cooled.IsZero():
			stats.CountAtCapacity(room)
		case c.MaxLeases <= 0:
			stats.CountInCooldown(time.Time{})
		default:
			stats.CountInCooldown(latest(room, cooled))
		}
	}
	return stats
}

// coolsUntil is when a candidate's cooldowns for this target and for all
// targets are over; zero when it has none.
func (s *Store) coolsUntil(proxyUID, target string) time.Time {
	targets := s.cooling[proxyUID]
	if targets == nil {
		return time.Time{}
	}
	var until time.Time
	for _, key := range []string{"", target} {
		if c := targets[key]; c != nil {
			until = latest(until, c.at)
		}
	}
	return until
}

// roomAt is when enough of a candidate's leases have expired for one more;
// zero when there is room already, or never will be. More leases may run than
// maxLeases allows, when that was lowered.
func (s *Store) roomAt(c *lease.Candidate) time.Time {
	running := s.running[c.Instance]
	if c.MaxLeases <= 0 || len(running) < c.MaxLeases {
		return time.Time{}
	}
	ends := make([]time.Time, 0, len(running))
	for h := range running {
		ends = append(ends, h.ExpiresAt)
	}
	slices.SortFunc(ends, time.Time.Compare)
	return ends[len(ends)-c.MaxLeases]
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
