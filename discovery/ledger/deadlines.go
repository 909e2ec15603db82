package ledger

import (
	"container/heap"
	"time"
)

// deadline is embedded in whatever ends by itself.
type deadline struct {
	at    time.Time
	index int
	owner any // the *held, *cooldown or *session that embeds it
}

// deadlines is a heap with the next deadline first.
type deadlines []*deadline

func (d *deadlines) add(x *deadline, owner any, at time.Time) {
	x.owner, x.at = owner, at
	heap.Push(d, x)
}

func (d *deadlines) remove(x *deadline) { heap.Remove(d, x.index) }

func (d *deadlines) postpone(x *deadline, at time.Time) {
	x.at = at
	heap.Fix(d, x.index)
}

// Len, Less, Swap, Push and Pop make it a heap.Interface.
func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

// Push is for package heap.
func (d *deadlines) Push(x any) {
	e := x.(*deadline)
	e.index = len(*d)
	*d = append(*d, e)
}

// Pop is for package heap.
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	e := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return e
}

// Advance brings the ledger to now. Every other method calls it first, so that
// what has ended never counts, whether or not anything swept.
func (g *Ledger) Advance(now time.Time) {
	for len(g.due) > 0 && !g.due[0].at.After(now) {
		switch o := g.due[0].owner.(type) {
		case *held:
			g.lapse(o, now)
		case *cooldown:
			g.due.remove(&o.deadline)
			g.warm(o)
		case *session:
			g.due.remove(&o.deadline)
			delete(g.sessions, o.owned)
			g.journal.ForgetSession(Session{Holder: o.holder, Name: o.name, Instance: o.instance, Until: o.at})
		}
		g.revision++
	}
}

// Next is when the next thing ends by itself, zero when nothing does.
func (g *Ledger) Next() time.Time {
	if len(g.due) == 0 {
		return time.Time{}
	}
	return g.due[0].at
}

// lapse ends a lease that has expired, or forgets one that expired a window
// ago.
func (g *Ledger) lapse(h *held, now time.Time) {
	g.stop(h)
	if forgetAt := h.ExpiresAt.Add(g.window); forgetAt.After(now) {
		g.due.postpone(&h.deadline, forgetAt)
		return
	}
	g.due.remove(&h.deadline)
	g.forget(h)
}

// stop makes a lease count no longer.
func (g *Ledger) stop(h *held) {
	if h.place < 0 {
		return
	}
	x := g.holdings[h.Instance]
	last := len(x.held) - 1
	moved := x.held[last]
	x.held[h.place], moved.place = moved, h.place
	x.held[last], x.held = nil, x.held[:last]
	h.place = -1
	if last == 0 {
		delete(g.holdings, h.Instance)
	}
	if e := g.offeredAs(h.Instance); e != nil {
		e.rank.active--
		e.touch()
	}
}

// forget drops a lease that does not count.
func (g *Ledger) forget(h *held) {
	delete(g.leases, h.ID)
	if key := (owned{h.Holder, h.Key}); g.keys[key] == h {
		delete(g.keys, key)
	}
	g.journal.ForgetLease(h.Record)
	g.revision++
}

// cool starts a cooldown, or prolongs the one there is.
func (g *Ledger) cool(x Cooldown) {
	c := g.cooling[x.ProxyUID][x.Target]
	if c != nil && !x.Until.After(c.at) {
		return
	}
	if c != nil {
		g.due.postpone(&c.deadline, x.Until)
	} else {
		g.addCooldown(x)
	}
	g.journal.PutCooldown(x)
	g.revision++
}

func (g *Ledger) addCooldown(x Cooldown) {
	if g.cooling[x.ProxyUID] == nil {
		g.cooling[x.ProxyUID] = map[string]*cooldown{}
		if e := g.proxies[x.ProxyUID]; e != nil {
			e.cooling = g.cooling[x.ProxyUID]
		}
	}
	c := &cooldown{proxyUID: x.ProxyUID, target: x.Target}
	g.cooling[x.ProxyUID][x.Target] = c
	g.due.add(&c.deadline, c, x.Until)
}

// warm forgets a cooldown.
func (g *Ledger) warm(c *cooldown) {
	delete(g.cooling[c.proxyUID], c.target)
	e := g.proxies[c.proxyUID]
	if len(g.cooling[c.proxyUID]) == 0 {
		delete(g.cooling, c.proxyUID)
		if e != nil {
			e.cooling = nil
		}
	}
	if e != nil {
		e.touch()
	}
	g.journal.ForgetCooldown(Cooldown{ProxyUID: c.proxyUID, Target: c.target, Until: c.at})
}
