package ledger

import (
	"container/heap"
	"time"
)

// kind of thing that has a deadline.
type kind uint8

const (
	ofLease   kind = iota
	ofExpired      // lease, which takes reports until then
	ofSession
	ofCooldown       // for all targets
	ofTargetCooldown // for one
	kinds            // number of them
)

// deadline is embedded in what ends at a time.
type deadline struct {
	at    time.Time
	owner any       // the *activeLease, *expiredLease, *cooldown or *session that embeds it
	group *timeHeap // of those that share a limit, nil for none
	// index in the heap of its kind, and in its group.
	index [2]int32
}

// kind follows from the owner, which takes no memory.
func (d *deadline) kind() kind {
	switch o := d.owner.(type) {
	case *expiredLease:
		return ofExpired
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

// deadlines has a heap for each kind.
type deadlines [kinds]timeHeap

func (ds *deadlines) add(d *deadline, owner any, at time.Time, group *timeHeap) {
	d.owner, d.at, d.group = owner, at, group
	heap.Push(&ds[d.kind()], d)
	if group != nil {
		heap.Push(group, d)
	}
}

func (ds *deadlines) remove(d *deadline) {
	heap.Remove(&ds[d.kind()], int(d.index[inKind]))
	if d.group != nil {
		heap.Remove(d.group, int(d.index[inGroup]))
	}
}

// move changes the time of a deadline.
func (ds *deadlines) move(d *deadline, at time.Time) {
	d.at = at
	heap.Fix(&ds[d.kind()], int(d.index[inKind]))
	if d.group != nil {
		heap.Fix(d.group, int(d.index[inGroup]))
	}
}

// first returns the earliest deadline, nil when there is none.
func (ds *deadlines) first() *deadline {
	var first *deadline
	for _, h := range ds {
		if d := h.first(); d != nil && (first == nil || d.at.Before(first.at)) {
			first = d
		}
	}
	return first
}

// timeHeap is a heap with the earliest deadline at the top.
type timeHeap struct {
	items []*deadline
	which int // inKind or inGroup
}

// Which of deadline.index belongs to a heap.
const (
	inKind  = 0
	inGroup = 1
)

func (h *timeHeap) first() *deadline {
	if len(h.items) == 0 {
		return nil
	}
	return h.items[0]
}

// Len, Less, Swap, Push and Pop make it a heap.Interface.
func (h *timeHeap) Len() int { return len(h.items) }

// Less is for package heap. Expired leases of one time are in the order of their ids, so
// that all stores evict the same one.
func (h *timeHeap) Less(i, j int) bool {
	a, b := h.items[i], h.items[j]
	if x, ok := a.owner.(*expiredLease); ok && a.at.Equal(b.at) {
		return x.id < b.owner.(*expiredLease).id
	}
	return a.at.Before(b.at)
}

// Swap is for package heap.
func (h *timeHeap) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].index[h.which], h.items[j].index[h.which] = int32(i), int32(j)
}

// Push is for package heap.
func (h *timeHeap) Push(x any) {
	d := x.(*deadline)
	d.index[h.which] = int32(len(h.items))
	h.items = append(h.items, d)
}

// Pop is for package heap.
func (h *timeHeap) Pop() any { return popLast(&h.items) }

func popLast[T any](items *[]*T) *T {
	last := len(*items) - 1
	x := (*items)[last]
	(*items)[last], *items = nil, (*items)[:last]
	return x
}

// groups are the deadlines that share a limit: the sessions of a holder, or a
// Proxy's cooldowns for single targets. Empty groups are dropped.
type groups map[string]*timeHeap

func (gs groups) group(name string) *timeHeap {
	if gs[name] == nil {
		gs[name] = &timeHeap{which: inGroup}
	}
	return gs[name]
}

// size of a group, and when the first of it ends.
func (gs groups) size(name string) (size int, first time.Time) {
	h := gs[name]
	if h == nil {
		return 0, time.Time{}
	}
	return h.Len(), h.first().at
}

// tidy drops a group that is empty.
func (gs groups) tidy(name string) {
	if h := gs[name]; h != nil && h.Len() == 0 {
		delete(gs, name)
	}
}

// Advance removes what has ended by now. Every other method calls it first, so that
// correctness does not depend on a periodic sweep.
func (g *Ledger) Advance(now time.Time) {
	g.now = now
	for d := g.deadlines.first(); d != nil && !d.at.After(now); d = g.deadlines.first() {
		switch o := d.owner.(type) {
		case *activeLease:
			g.expire(o)
		case *expiredLease:
			g.removeExpired(o)
		case *cooldown:
			g.removeCooldown(o)
		case *session:
			g.removeSession(o)
		}
		g.revision++
	}
}

// Next is when the next deadline passes, zero when there is none.
func (g *Ledger) Next() time.Time {
	if d := g.deadlines.first(); d != nil {
		return d.at
	}
	return time.Time{}
}
