package ledger

import (
	"errors"
	"fmt"
	"slices"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Check returns what is wrong inside the ledger: nil, or there is a defect.
// Tests call it; it looks at everything.
func (g *Ledger) Check() error {
	inDue, running := 0, 0
	if err := g.checkRoll(); err != nil {
		return err
	}
	for id, h := range g.leases {
		if id != h.ID || !g.due.has(&h.deadline) {
			return fmt.Errorf("lease %s is lost to the deadlines", id)
		}
		running++
		if x := g.holdingOf(h); h.place >= len(x.held) || x.held[h.place] != h {
			return fmt.Errorf("lease %s runs and does not count", id)
		}
		inDue++
	}
	for _, e := range g.proxies {
		running -= len(e.held)
	}
	for i, x := range g.stranded {
		if len(x.held) == 0 {
			return fmt.Errorf("an empty holding is kept for %v", i)
		}
		running -= len(x.held)
	}
	if running != 0 {
		return fmt.Errorf("%d leases count that do not run", -running)
	}
	for key, h := range g.keys {
		if g.leases[h.ID] != h || h.Key != key.name {
			return fmt.Errorf("key %v leads to lease %s that is forgotten", key, h.ID)
		}
	}
	for uid, targets := range g.cooling {
		if len(targets) == 0 {
			return fmt.Errorf("an empty set of cooldowns is kept for %s", uid)
		}
		inDue += len(targets)
	}
	kept := 0
	for _, d := range g.due {
		kept += len(d)
	}
	if inDue += len(g.sessions); inDue != kept {
		return fmt.Errorf("%d things end and %d deadlines are kept", inDue, kept)
	}
	return errors.Join(g.checkExpired(), g.checkSessions(), g.checkGroups(), g.checkRefusals(), g.checkIndex())
}

// checkRoll wants the leases that run to be on the roll, in order and once.
func (g *Ledger) checkRoll() error {
	on, last := map[*held]bool{}, uint64(0)
	for _, p := range g.roll.places {
		if p.fence < last || p.held != nil && (p.held.FencingToken != p.fence || on[p.held]) {
			return fmt.Errorf("lease %d is out of order on the roll", p.fence)
		}
		last = p.fence
		if p.held != nil {
			on[p.held] = true
		}
	}
	if len(on)+g.roll.gaps != len(g.roll.places) {
		return fmt.Errorf("the roll has %d places, %d leases and %d gaps", len(g.roll.places), len(on), g.roll.gaps)
	}
	for id, h := range g.leases {
		if !on[h] {
			return fmt.Errorf("lease %s is not on the roll", id)
		}
	}
	return nil
}

// checkExpired wants the list to be in order, whole, and within the limit.
func (g *Ledger) checkExpired() error {
	n, last := 0, (*expired)(nil)
	for x := g.expired.oldest; x != nil; n, last, x = n+1, x, x.next {
		if g.expired.byID[x.id] != x || x.prev != last || last != nil && !last.before(x) || g.leases[x.id] != nil {
			return fmt.Errorf("expired lease %s is out of order", x.id)
		}
	}
	if n != len(g.expired.byID) || last != g.expired.newest || n > g.limits.Expired {
		return fmt.Errorf("%d expired leases are in order, of %d", n, len(g.expired.byID))
	}
	return nil
}

func (g *Ledger) checkSessions() error {
	for name, s := range g.sessions {
		if s.owned != name {
			return fmt.Errorf("session %v is kept as %v", s.owned, name)
		}
		for _, h := range s.held {
			if g.leases[h.ID] != h || g.sessionOf(h.Lease) != s {
				return fmt.Errorf("session %v has lease %s, which does not run or is another's", name, h.ID)
			}
		}
	}
	return nil
}

// checkGroups wants each session and each cooldown for one target in its group.
func (g *Ledger) checkGroups() error {
	sessions, targets := map[string]int{}, map[string]int{}
	for name := range g.sessions {
		sessions[name.holder]++
	}
	for uid, all := range g.cooling {
		for target := range all {
			if target != "" {
				targets[uid]++
			}
		}
	}
	for what, kept := range map[*groups]map[string]int{&g.holders: sessions, &g.resting: targets} {
		if len(*what) != len(kept) {
			return fmt.Errorf("%d groups for %d names", len(*what), len(kept))
		}
		for name, want := range kept {
			if n, first := what.size(name); n != want || slices.ContainsFunc(*(*what)[name], func(d *deadline) bool { return d.at.Before(first) }) {
				return fmt.Errorf("group %q has %d of %d, the first at %s", name, n, want, first)
			}
		}
	}
	return nil
}

func (g *Ledger) checkRefusals() error {
	for key, r := range g.refusals.known {
		if r.revision != g.revision {
			continue
		}
		if now := g.explain(r.request, g.matching(r.request)...); now != r.stats {
			return fmt.Errorf("refusal %q is remembered as %+v and would be %+v", key, r.stats, now)
		}
	}
	return nil
}

func (g *Ledger) checkIndex() error {
	places := 0
	for _, e := range g.proxies {
		if g.stranded[e.Instance] != nil || len(e.cooling) != len(g.cooling[e.ProxyUID]) {
			return fmt.Errorf("proxy %s has lost its leases or cooldowns", e.Proxy)
		}
		places += len(e.places)
		for _, v := range g.index.views {
			in := slices.ContainsFunc(e.places, func(p place) bool { return p.view == v })
			if in != lease.HasAttributes(e.Attributes, v.selector) {
				return fmt.Errorf("proxy %s is in the view of %v: %t", e.Proxy, v.selector, in)
			}
		}
	}
	for key, v := range g.index.views {
		if err := v.check(); err != nil {
			return fmt.Errorf("view %q: %w", key, err)
		}
		places -= v.size()
	}
	if places != 0 {
		return fmt.Errorf("%d places lead to no view", places)
	}
	return nil
}

// check holds the view to its invariants.
func (v *view) check() error {
	sitting := 0
	if len(v.entries) == 0 {
		return nil
	}
	for seat, e := range v.entries {
		noted := v.bottom[seat/fanout][seat%fanout]
		switch {
		case e == nil && noted != parked:
			return fmt.Errorf("nobody in seat %d is wanted", seat)
		case e == nil:
			continue
		case !slices.Contains(e.places, place{v, int32(seat)}):
			return fmt.Errorf("proxy %s does not know its seat", e.Proxy)
		case noted > e.key(v.target): // smaller ones are found out when they come up
			return fmt.Errorf("proxy %s is noted as %x and is %x", e.Proxy, noted, e.key(v.target))
		}
		sitting++
	}
	if sitting != v.size() {
		return fmt.Errorf("%d seats are taken, not %d", sitting, v.size())
	}
	below := len(v.bottom)
	for n, level := range v.levels {
		for i := range below {
			k, winner := v.winner(n, i)
			if up := level[i/fanout]; up.keys[i%fanout] != k || k != parked && up.seats[i%fanout] != winner {
				return fmt.Errorf("group %d below level %d has another winner", i, n)
			}
		}
		below = len(level)
	}
	if below != 1 {
		return fmt.Errorf("%d groups are on top", below)
	}
	return nil
}
