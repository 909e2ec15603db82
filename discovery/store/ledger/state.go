package ledger

import (
	"cmp"
	"slices"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// State is what outlives a process.
type State struct {
	Leases    []Record
	Cooldowns []Cooldown
	Sessions  []Session
	// Fence is at least the token of every lease that was granted.
	Fence uint64
}

// Reset replaces what the ledger holds by a state. It keeps the fleet and the larger
// fencing token, and writes nothing to the journal.
func (g *Ledger) Reset(s State) {
	g.fence = max(g.fence, s.Fence)
	g.clear()
	for _, x := range s.Sessions { // before their leases
		g.putSession(x)
	}
	slices.SortFunc(s.Leases, func(a, b Record) int { return cmp.Compare(a.FencingToken, b.FencingToken) })
	for _, r := range s.Leases {
		g.fence = max(g.fence, r.FencingToken)
		g.insert(&activeLease{Record: r})
	}
	for _, c := range s.Cooldowns {
		g.addCooldown(c)
	}
	g.revision++
}

// clear drops all state but the fleet.
func (g *Ledger) clear() {
	limits := g.index.limits
	g.index = newIndex()
	g.index.limits = limits
	g.stats.clear()
	for _, p := range g.proxies {
		p.items, p.leases, p.cooldowns = nil, nil, nil
	}
	g.detached = map[lease.Instance]*leaseSet{}
	g.leases, g.keys, g.byFence = map[string]*activeLease{}, map[scopedName]*activeLease{}, byFence{}
	g.expired = expiredList{byID: map[string]*expiredLease{}}
	g.sessions, g.cooldowns = map[scopedName]*session{}, map[string]map[string]*cooldown{}
	g.deadlines, g.holderSessions, g.targetCooldowns = deadlines{}, groups{}, groups{}
}

// State returns what outlives the process, in no order.
func (g *Ledger) State() State {
	s := State{Fence: g.fence}
	for _, l := range g.leases {
		s.Leases = append(s.Leases, l.Record)
	}
	for _, x := range g.expired.byID {
		s.Leases = append(s.Leases, x.record())
	}
	for uid, targets := range g.cooldowns {
		for target, c := range targets {
			s.Cooldowns = append(s.Cooldowns, Cooldown{ProxyUID: uid, Target: target, Until: c.at})
		}
	}
	for _, x := range g.sessions {
		s.Sessions = append(s.Sessions, x.record())
	}
	return s
}
