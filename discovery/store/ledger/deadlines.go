package ledger

import (
	"container/heap"
	"time"
)

// kind of thing that ends by itself.
type kind uint8

const (
	ofLease kind = iota
	ofSession
	ofCooldown       // for all targets
	ofTargetCooldown // for one
	kinds            // how many there are
)

// deadline is embedded in whatever ends by itself.
type deadline struct {
	at    time.Time
	owner any    // the *held, *cooldown or *session that embeds it
	group *group // that it belongs to, nil for none
	// index among its kind, seat in its group.
	index, seat int32
}

// kind follows from the owner, which takes no memory.
func (x *deadline) kind() kind {
	switch o := x.owner.(type) {
	case *session:
		return ofSession
	case *cooldown:
		if o.target == "" {
			return ofCooldown
		}
		return ofTargetCooldown
	}
	return ofLease
}

// calendar holds all deadlines, each kind in a heap of its own.
type calendar [kinds]deadlines

func (c *calendar) add(x *deadline, owner any, at time.Time, in *group) {
	x.owner, x.at, x.group = owner, at, in
	heap.Push(&c[x.kind()], x)
	if in != nil {
		heap.Push(in, x)
	}
}

func (c *calendar) remove(x *deadline) {
	heap.Remove(&c[x.kind()], int(x.index))
	if x.group != nil {
		heap.Remove(x.group, int(x.seat))
	}
}

// move gives a deadline another time, before or after the one that it had.
func (c *calendar) move(x *deadline, at time.Time) {
	x.at = at
	heap.Fix(&c[x.kind()], int(x.index))
	if x.group != nil {
		heap.Fix(x.group, int(x.seat))
	}
}

// next returns the first deadline of all, nil when there is none.
func (c *calendar) next() *deadline {
	var first *deadline
	for _, d := range c {
		if len(d) > 0 && (first == nil || d[0].at.Before(first.at)) {
			first = d[0]
		}
	}
	return first
}

// has reports whether the deadline is in its place.
func (c *calendar) has(x *deadline) bool {
	all := c[x.kind()]
	return int(x.index) < len(all) && all[x.index] == x
}

// deadlines is a heap with the next deadline first.
type deadlines []*deadline

// Len, Less, Swap, Push and Pop make it a heap.Interface.
func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = int32(i), int32(j)
}

// Push is for package heap.
func (d *deadlines) Push(x any) {
	e := x.(*deadline)
	e.index = int32(len(*d))
	*d = append(*d, e)
}

// Pop is for package heap.
func (d *deadlines) Pop() any { return pop((*[]*deadline)(d)) }

// group is some of the deadlines of one kind that are limited together: the
// sessions of one holder, or the cooldowns of one Proxy for single targets. It
// is a heap, too.
type group []*deadline

// Len, Less, Swap, Push and Pop make it a heap.Interface.
func (g group) Len() int           { return len(g) }
func (g group) Less(i, j int) bool { return g[i].at.Before(g[j].at) }
func (g group) Swap(i, j int) {
	g[i], g[j] = g[j], g[i]
	g[i].seat, g[j].seat = int32(i), int32(j)
}

// Push is for package heap.
func (g *group) Push(x any) {
	e := x.(*deadline)
	e.seat = int32(len(*g))
	*g = append(*g, e)
}

// Pop is for package heap.
func (g *group) Pop() any { return pop((*[]*deadline)(g)) }

// groups are by what their deadlines have in common. Empty ones are not kept.
type groups map[string]*group

// of returns the group of that name, and makes it when there is none.
func (g groups) of(name string) *group {
	if g[name] == nil {
		g[name] = &group{}
	}
	return g[name]
}

// size of the group of that name, and when the first in it ends.
func (g groups) size(name string) (size int, first time.Time) {
	x := g[name]
	if x == nil {
		return 0, time.Time{}
	}
	return len(*x), (*x)[0].at
}

// tidy drops the group of that name when it is empty.
func (g groups) tidy(name string) {
	if x := g[name]; x != nil && len(*x) == 0 {
		delete(g, name)
	}
}

// pop takes the last item off.
func pop(d *[]*deadline) *deadline {
	last := len(*d) - 1
	e := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return e
}

// Advance brings the ledger to now. Every other method calls it first, so that
// what has ended never counts, whether or not anything swept.
func (g *Ledger) Advance(now time.Time) {
	g.now = now
	for next := g.due.next(); next != nil && !next.at.After(now); next = g.due.next() {
		switch o := next.owner.(type) {
		case *held:
			g.lapse(o)
		case *cooldown:
			g.warm(o)
		case *session:
			g.dropSession(o)
		}
		g.revision++
	}
	for g.expired.oldest != nil && !g.forgetAt().After(now) {
		g.forgetExpired(g.expired.oldest)
	}
}

// Next is when the next thing ends by itself, zero when nothing does.
func (g *Ledger) Next() time.Time {
	first := g.forgetAt()
	if next := g.due.next(); next != nil && (first.IsZero() || next.at.Before(first)) {
		return next.at
	}
	return first
}

// stop makes a lease count no longer.
func (g *Ledger) stop(h *held) {
	x := g.holdingOf(h)
	x.remove(h)
	if h.entry != nil {
		h.entry.touch()
		g.refusals.changed(g, h.entry)
		h.entry = nil
	} else if len(x.held) == 0 {
		delete(g.stranded, h.Instance)
	}
	g.detach(h)
	g.roll.remove(h)
}
