package ledger

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// lookedAt is at how many leases List looks at once.
const lookedAt = 4096

// List returns a part of the leases that run and that the query asks for.
func (g *Ledger) List(now time.Time, q lease.Query) lease.Page {
	g.Advance(now)
	var page lease.Page
	places := g.roll.places
	start := sort.Search(len(places), func(i int) bool { return places[i].fence > q.After })
	for i := start; i < len(places); i++ {
		if i == start+lookedAt || len(page.Leases) == q.Limit {
			page.Next = places[i-1].fence
			break
		}
		if h := places[i].held; h != nil && q.Matches(h.Lease) {
			l := h.Lease
			l.Ended = g.ended(l)
			page.Leases = append(page.Leases, l)
		}
	}
	return page
}

// Cooldowns lists those of a Proxy, by target: the one for all comes first.
func (g *Ledger) Cooldowns(now time.Time, proxyUID string) []lease.Cooldown {
	g.Advance(now)
	out := make([]lease.Cooldown, 0, len(g.cooling[proxyUID]))
	for target, c := range g.cooling[proxyUID] {
		out = append(out, lease.Cooldown{Target: target, Until: c.at})
	}
	slices.SortFunc(out, func(a, b lease.Cooldown) int { return cmp.Compare(a.Target, b.Target) })
	return out
}

// EndCooldown ends a cooldown before its time, and reports whether there was one.
func (g *Ledger) EndCooldown(now time.Time, proxyUID, target string) bool {
	g.Advance(now)
	c := g.cooling[proxyUID][target]
	if c == nil {
		return false
	}
	g.warm(c)
	g.revision++
	return true
}

// EndCooldowns ends a Proxy's cooldown for one target, or all that it has when the
// target is "", and says how many.
func (g *Ledger) EndCooldowns(now time.Time, proxyUID, target string) (ended int) {
	for _, c := range g.Cooldowns(now, proxyUID) {
		if (target == "" || c.Target == target) && g.EndCooldown(now, proxyUID, c.Target) {
			ended++
		}
	}
	return ended
}
