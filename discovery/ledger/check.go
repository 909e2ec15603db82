package ledger

import "fmt"

// Check returns what is wrong inside the ledger: nil, or there is a defect.
// Tests call it; it looks at everything.
func (g *Ledger) Check() error {
	inDue, running := 0, 0
	for id, h := range g.leases {
		if id != h.ID || g.due[h.index] != &h.deadline {
			return fmt.Errorf("lease %s is lost to the deadlines", id)
		}
		if h.place >= 0 {
			running++
			if x := g.holdings[h.Instance]; x == nil || x.held[h.place] != h {
				return fmt.Errorf("lease %s runs and does not count", id)
			}
		}
		inDue++
	}
	for i, x := range g.holdings {
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
	if inDue += len(g.sessions); inDue != len(g.due) {
		return fmt.Errorf("%d things end and %d deadlines are kept", inDue, len(g.due))
	}
	return nil
}
