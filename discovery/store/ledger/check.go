package ledger

import (
	"errors"
	"fmt"
	"slices"
)

// Check verifies the ledger's invariants, for tests. It visits everything.
func (g *Ledger) Check() error {
	return errors.Join(g.checkLeases(), g.checkByFence(), g.checkExpired(), g.checkSessions(), g.checkDeadlines(), g.checkStats(), g.checkIndex())
}

// checkLeases wants each running lease in one set, and nothing else there.
func (g *Ledger) checkLeases() error {
	surplus := -len(g.leases)
	for id, l := range g.leases {
		if x := g.setOf(l); id != l.ID || l.index >= len(x.leases) || x.leases[l.index] != l {
			return fmt.Errorf("lease %s is in no set", id)
		}
	}
	for _, p := range g.proxies {
		if g.detached[p.Instance] != nil || len(p.cooldowns) != len(g.cooldowns[p.ProxyUID]) {
			return fmt.Errorf("proxy %s lacks its leases or cooldowns", p.Proxy)
		}
		surplus += len(p.leases)
	}
	for i, x := range g.detached {
		if len(x.leases) == 0 {
			return fmt.Errorf("the set of %v is empty", i)
		}
		surplus += len(x.leases)
	}
	if surplus != 0 {
		return fmt.Errorf("the sets have %d leases too many", surplus)
	}
	for key, l := range g.keys {
		if g.leases[l.ID] != l || l.Key != key.name {
			return fmt.Errorf("key %v refers to lease %s, which does not run", key, l.ID)
		}
	}
	return nil
}

// checkByFence wants the running leases in order, each once.
func (g *Ledger) checkByFence() error {
	seen, last := map[*activeLease]bool{}, uint64(0)
	for _, r := range g.byFence.rows {
		if r.fence < last || r.lease != nil && (r.lease.FencingToken != r.fence || g.leases[r.lease.ID] != r.lease || seen[r.lease]) {
			return fmt.Errorf("byFence: lease %d is out of order", r.fence)
		}
		last = r.fence
		if r.lease != nil {
			seen[r.lease] = true
		}
	}
	if len(seen) != len(g.leases) || len(seen)+g.byFence.gaps != len(g.byFence.rows) {
		return fmt.Errorf("byFence: %d rows for %d of %d leases and %d gaps", len(g.byFence.rows), len(seen), len(g.leases), g.byFence.gaps)
	}
	return nil
}

// checkExpired wants none that runs, and no more than the limit.
func (g *Ledger) checkExpired() error {
	for id, x := range g.expired {
		if x.id != id || g.leases[id] != nil {
			return fmt.Errorf("expired lease %s runs, or has another id", id)
		}
	}
	if n := len(g.expired); n > g.limits.Expired {
		return fmt.Errorf("%d expired leases are kept, and at most %d are allowed", n, g.limits.Expired)
	}
	return nil
}

func (g *Ledger) checkSessions() error {
	for name, s := range g.sessions {
		if s.scopedName != name {
			return fmt.Errorf("session %v has the key %v", s.scopedName, name)
		}
		for _, l := range s.leases {
			if g.leases[l.ID] != l || g.sessionOf(l.Lease) != s {
				return fmt.Errorf("session %v has lease %s, which does not run or is another's", name, l.ID)
			}
		}
	}
	return nil
}

// checkDeadlines wants one deadline for everything that ends, and each session and
// each cooldown for one target in its group.
func (g *Ledger) checkDeadlines() error {
	want, grouped := len(g.leases)+len(g.expired)+len(g.sessions), map[*groups]map[string]int{&g.holderSessions: {}, &g.targetCooldowns: {}}
	for name := range g.sessions {
		grouped[&g.holderSessions][name.holder]++
	}
	for uid, targets := range g.cooldowns {
		if len(targets) == 0 {
			return fmt.Errorf("the set of cooldowns of %s is empty", uid)
		}
		want += len(targets)
		for target := range targets {
			if target != "" {
				grouped[&g.targetCooldowns][uid]++
			}
		}
	}
	for _, h := range g.deadlines {
		want -= h.Len()
		if err := h.check(); err != nil {
			return err
		}
	}
	if want != 0 {
		return fmt.Errorf("%d deadlines are missing", want)
	}
	for what, sizes := range grouped {
		if len(*what) != len(sizes) {
			return fmt.Errorf("%d groups for %d names", len(*what), len(sizes))
		}
		for name, want := range sizes {
			if n, _ := what.size(name); n != want {
				return fmt.Errorf("group %q has %d of %d", name, n, want)
			}
			if err := (*what)[name].check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// check wants the heap in order, with correct indexes.
func (h *timeHeap) check() error {
	for i, d := range h.items {
		if int(d.index[h.which]) != i || i > 0 && h.Less(i, (i-1)/2) {
			return fmt.Errorf("deadline %s is out of order", d.at)
		}
	}
	return nil
}

// checkStats wants cached stats to be those of now, unless they may be stale.
func (g *Ledger) checkStats() error {
	for key, c := range g.stats.byRequest {
		if now := explain(c.request, g.matching(c.request)...); c.revision == g.revision && now != c.stats {
			return fmt.Errorf("stats of %q are cached as %+v and are %+v", key, c.stats, now)
		}
	}
	return nil
}

// checkIndex wants each proxy in the views that it matches, and the heaps in order.
func (g *Ledger) checkIndex() error {
	surplus := -g.index.items
	for key, v := range g.index.views {
		surplus += len(v.items)
		for i, it := range v.items {
			switch now := it.proxy.rank(v.request.Target); {
			case it.index != i || it.view != v || !slices.Contains(it.proxy.items, it):
				return fmt.Errorf("view %q: item %d of proxy %s is lost", key, i, it.proxy.Proxy)
			case now.before(it.rank): // a stale rank is the better one
				return fmt.Errorf("view %q: proxy %s has rank %v and not %v", key, it.proxy.Proxy, it.rank, now)
			case i > 0 && v.Less(i, (i-1)/2):
				return fmt.Errorf("view %q: item %d is below a worse one", key, i)
			}
		}
	}
	for _, p := range g.proxies {
		for _, v := range g.index.views {
			in := slices.ContainsFunc(p.items, func(it *item) bool { return it.view == v })
			if in != v.request.Matches(p.Attributes, p.Scheme) {
				return fmt.Errorf("proxy %s is in the view of %v: %t", p.Proxy, v.request, in)
			}
		}
	}
	if surplus != 0 {
		return fmt.Errorf("the views have %d items too many", surplus)
	}
	return nil
}
