package ledger

import (
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// choose returns the preferred proxy that can be leased, nil when there is none.
func (g *Ledger) choose(req lease.Request) *proxy {
	allowed := func(p *proxy) bool { return !slices.Contains(req.Exclude, p.Proxy) }
	if req.Target != "" {
		if v := g.index.find(viewKey(req, req.Target)); v != nil {
			best, _ := v.best(allowed)
			return best
		}
		anyTarget := allowed
		allowed = func(p *proxy) bool { return !p.coolsFor(req.Target) && anyTarget(p) }
	}
	v := g.view(req, "")
	if v == nil {
		return g.scan(req)
	}
	best, skipped := v.best(allowed)
	if skipped > g.index.limits.skipped+len(req.Exclude) {
		g.view(req, req.Target)
	}
	return best
}

// scan is choose without an index.
func (g *Ledger) scan(req lease.Request) *proxy {
	var best *proxy
	for _, p := range g.proxies {
		if !matches(p, req) || !p.available(req.Target) {
			continue
		}
		if best == nil || lease.Compare(p.standing(), best.standing()) < 0 {
			best = p
		}
	}
	return best
}

func (p *proxy) standing() lease.Standing {
	return lease.Standing{Candidate: &p.Candidate, Active: len(p.leases), LastGrant: p.lastGrant}
}

// matches reports whether the fleet offers the proxy for such a request.
func matches(p *proxy, req lease.Request) bool {
	return p.Leasable && req.Matches(p.Attributes, p.Scheme) && !slices.Contains(req.Exclude, p.Proxy)
}

// matching lists the proxies that the fleet offers for a request.
func (g *Ledger) matching(req lease.Request) []*proxy {
	return slices.DeleteFunc(g.members(req), func(p *proxy) bool { return !matches(p, req) })
}

// explain counts why none of these proxies can be leased.
func explain(req lease.Request, matching ...*proxy) lease.Stats {
	stats := lease.Stats{Considered: len(matching)}
	for _, p := range matching {
		room, cooled := p.roomAt(), p.coolsUntil(req.Target)
		switch {
		case cooled.IsZero():
			stats.CountAtCapacity(room)
		case p.MaxLeases <= 0:
			stats.CountInCooldown(time.Time{})
		default:
			stats.CountInCooldown(latest(room, cooled))
		}
	}
	return stats
}

// coolsUntil is when the proxy's cooldowns for this target and for all targets have
// ended; zero when it has none.
func (p *proxy) coolsUntil(target string) (until time.Time) {
	if len(p.cooldowns) == 0 {
		return until
	}
	for _, key := range []string{"", target} {
		if c := p.cooldowns[key]; c != nil {
			until = latest(until, c.at)
		}
	}
	return until
}

// roomAt is when enough leases have expired for one more; zero when there is room
// now or never. More leases than maxLeases may run after it was lowered.
func (p *proxy) roomAt() time.Time {
	over := len(p.leases) - p.MaxLeases
	if p.MaxLeases <= 0 || over < 0 {
		return time.Time{}
	}
	if over == 0 { // the usual case, without an allocation
		first := p.leases[0].ExpiresAt
		for _, l := range p.leases[1:] {
			if l.ExpiresAt.Before(first) {
				first = l.ExpiresAt
			}
		}
		return first
	}
	ends := make([]time.Time, 0, len(p.leases))
	for _, l := range p.leases {
		ends = append(ends, l.ExpiresAt)
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
