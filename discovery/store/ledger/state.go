package ledger

import (
	"cmp"
	"slices"
)

// State is what outlives a process.
type State struct {
	Leases    []Record
	Cooldowns []Cooldown
	Sessions  []Session
	// Fence is a token that no lease has that was given later.
	Fence uint64
}

// Reset puts a state in the place of what the ledger holds; what it knows of
// the fleet stays. Fencing tokens go on from the larger of both. The journal is
// told nothing.
func (g *Ledger) Reset(s State) {
	g.fence = max(g.fence, s.Fence)
	g.unlink()
	g.leases, g.keys, g.sessions = map[string]*held{}, map[owned]*held{}, map[owned]*session{}
	g.expired = newMemories()
	g.cooling, g.due = map[string]map[string]*cooldown{}, calendar{}
	g.holders, g.resting, g.roll = groups{}, groups{}, roll{}
	for _, x := range s.Sessions { // before their leases
		g.putSession(x)
	}
	slices.SortFunc(s.Leases, func(a, b Record) int { return cmp.Compare(a.FencingToken, b.FencingToken) })
	for _, r := range s.Leases {
		g.fence = max(g.fence, r.FencingToken)
		g.hold(&held{Record: r})
	}
	for _, c := range s.Cooldowns {
		g.addCooldown(c)
	}
	g.revision++
}

// State is what outlives the process, in no order.
func (g *Ledger) State() State {
	s := State{Fence: g.fence}
	for _, h := range g.leases {
		s.Leases = append(s.Leases, h.Record)
	}
	for _, x := range g.expired.byID {
		s.Leases = append(s.Leases, x.record())
	}
	for uid, targets := range g.cooling {
		for target, c := range targets {
			s.Cooldowns = append(s.Cooldowns, Cooldown{ProxyUID: uid, Target: target, Until: c.at})
		}
	}
	for name, x := range g.sessions {
		s.Sessions = append(s.Sessions, Session{Holder: name.holder, Name: name.name, Instance: x.instance, Until: x.at})
	}
	return s
}
