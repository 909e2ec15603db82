package ledger

import (
	"cmp"
	"slices"
)

// view keeps the proxies that match one selector in order of preference for
// one target, so that the best is at hand.
//
// It is a heap that is put right late. Most changes make a proxy less wanted
// (a grant, a cooldown) and touch no view: the rank that a view has noted is
// then too good, and is corrected when the proxy comes up. Only a change that
// makes a proxy more wanted (a release, the end of a cooldown, an offer) has to
// be told to its views, by touch. So at all times
//
//   - a live item's noted rank is not worse than its proxy's, and
//   - a parked item's proxy cannot be leased for the view's target.
type view struct {
	selector map[string]string
	target   string
	items    []item // live ones are a heap, parked ones come after them
	live     int
	seats    []int32 // by ticket: which item it is now
	spare    []int32 // tickets that nobody has
	used     uint64  // when it was last asked, for evictions
}

// item is a proxy's place in a view. Items move all the time. Where they went is
// noted in the view's seats, which are few and side by side in memory, and not
// in the proxies, which are many and far apart.
type item struct {
	*entry
	ticket int32
	noted  rank
}

// place is how a proxy finds its item in a view.
type place struct {
	view   *view
	ticket int32
}

func (p place) seat() int { return int(p.view.seats[p.ticket]) }

// rank is what lease.Compare compares, short of names.
type rank struct {
	active, class int32
	lastGrant     uint64
}

func (a rank) compare(b rank) int {
	switch {
	case a.active != b.active:
		return cmp.Compare(a.active, b.active)
	case a.class != b.class:
		return cmp.Compare(a.class, b.class)
	}
	return cmp.Compare(a.lastGrant, b.lastGrant)
}

// free reports whether the proxy can be leased for the target now.
func (e *entry) free(target string) bool {
	return e.rank.active < e.room && !e.cools(target)
}

func (e *entry) cools(target string) bool {
	if len(e.cooling) == 0 {
		return false
	}
	return e.cooling[""] != nil || e.cooling[target] != nil
}

// before reports whether one item is preferred to another, going by noted ranks.
func (it *item) before(o *item) bool {
	if c := it.noted.compare(o.noted); c != 0 {
		return c < 0
	}
	return cmp.Or(cmp.Compare(it.Proxy, o.Proxy), cmp.Compare(it.ProxyUID, o.ProxyUID)) < 0
}

func (v *view) swap(i, j int) {
	v.items[i], v.items[j] = v.items[j], v.items[i]
	v.seat(i)
	v.seat(j)
}

// seat notes where item i is.
func (v *view) seat(i int) { v.seats[v.items[i].ticket] = int32(i) }

// fanout of the heap: with four children to an item, and those side by side in
// memory, there are half as many levels to walk as with two.
const fanout = 4

// up moves item i towards the top while it is preferred to the one above.
func (v *view) up(i int) {
	moving := v.items[i]
	for i > 0 {
		parent := (i - 1) / fanout
		if !moving.before(&v.items[parent]) {
			break
		}
		v.put(i, v.items[parent])
		i = parent
	}
	v.put(i, moving)
}

// down moves live item i away from the top while one below is preferred.
func (v *view) down(i int) {
	moving := v.items[i]
	for {
		first := fanout*i + 1
		if first >= v.live {
			break
		}
		best := first
		for child := first + 1; child < min(first+fanout, v.live); child++ {
			if v.items[child].before(&v.items[best]) {
				best = child
			}
		}
		if !v.items[best].before(&moving) {
			break
		}
		v.put(i, v.items[best])
		i = best
	}
	v.put(i, moving)
}

// put makes an item the ith.
func (v *view) put(i int, it item) {
	v.items[i] = it
	v.seat(i)
}

// fix moves live item i to where its rank belongs.
func (v *view) fix(i int) {
	if i > 0 && v.items[i].before(&v.items[(i-1)/fanout]) {
		v.up(i)
	} else {
		v.down(i)
	}
}

// join adds a proxy, parked.
func (v *view) join(e *entry) {
	ticket := int32(len(v.seats))
	if last := len(v.spare) - 1; last >= 0 {
		ticket, v.spare = v.spare[last], v.spare[:last]
	} else {
		v.seats = append(v.seats, 0)
	}
	v.items = append(v.items, item{entry: e, ticket: ticket})
	v.seat(len(v.items) - 1)
	e.places = append(e.places, place{v, ticket})
}

// leave removes item i.
func (v *view) leave(i int) {
	if i < v.live {
		i = v.park(i)
	}
	last := len(v.items) - 1
	v.swap(i, last)
	it := v.items[last]
	it.places = slices.DeleteFunc(it.places, func(p place) bool { return p.view == v })
	v.spare = append(v.spare, it.ticket)
	v.items[last] = item{}
	v.items = v.items[:last]
}

// park takes live item i out of the heap, and returns where it went.
func (v *view) park(i int) int {
	v.live--
	v.swap(i, v.live)
	if i < v.live {
		v.fix(i)
	}
	return v.live
}

// unpark puts parked item i into the heap.
func (v *view) unpark(i int) {
	v.items[i].noted = v.items[i].entry.rank
	v.swap(i, v.live)
	v.live++
	v.up(v.live - 1)
}

// touch puts a proxy right in one of its views after it may have become more
// wanted.
func (p place) touch(e *entry) {
	v, i := p.view, p.seat()
	switch {
	case i >= v.live:
		if e.free(v.target) {
			v.unpark(i)
		}
	case e.rank.compare(v.items[i].noted) < 0:
		v.items[i].noted = e.rank
		v.up(i)
	}
}

// best returns the preferred proxy that is allowed, nil when there is none, and
// how many it had to pass over. Those that cannot be leased for the view's
// target are parked on the way.
func (v *view) best(allowed func(*entry) bool) (found *entry, passed int) {
	var aside []item
	for v.live > 0 && found == nil {
		top := v.items[0]
		switch {
		case !top.free(v.target):
			v.park(0)
		case top.entry.rank != top.noted:
			v.items[0].noted = top.entry.rank
			v.down(0)
		case !allowed(top.entry):
			v.park(0) // for this time
			aside = append(aside, top)
		default:
			found = top.entry
		}
	}
	for _, it := range aside {
		v.unpark(int(v.seats[it.ticket]))
	}
	return found, len(aside)
}
