package ledger

import (
	"cmp"
	"container/heap"
	"math"
	"slices"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// rank is what lease.Compare compares, names aside. The smaller one is preferred.
type rank struct {
	load uint64 // running leases
	// since is the fencing token of the last grant, moved up by classes. A proxy without
	// one has its latency class, which is below all of them.
	since uint64
}

// classes is the number of latency classes.
const classes = 64

// unavailable is the rank of a proxy that cannot be leased.
var unavailable = rank{load: math.MaxUint64}

func (r rank) before(o rank) bool { return r.load < o.load || r.load == o.load && r.since < o.since }

// rank of the proxy for a target.
func (p *proxy) rank(target string) rank {
	if !p.available(target) {
		return unavailable
	}
	if p.lastGrant == 0 {
		return rank{uint64(len(p.leases)), uint64(p.class)}
	}
	return rank{uint64(len(p.leases)), p.lastGrant + classes}
}

// available reports whether the proxy can be leased for the target now.
func (p *proxy) available(target string) bool { return p.hasRoom() && !p.coolsFor(target) }

func (p *proxy) hasRoom() bool { return len(p.leases) < p.room }

func (p *proxy) coolsFor(target string) bool {
	return len(p.cooldowns) > 0 && (p.cooldowns[""] != nil || p.cooldowns[target] != nil)
}

// view is a heap of the proxies that match one selector and one list of schemes, with
// the preferred one for one target at the top.
//
// Ranks in a view may be stale: a grant or a new cooldown makes a proxy less
// preferred, and updating all its views at once would cost each grant their
// memory. best corrects a stale rank when it comes to the top. A change that makes
// a proxy more preferred updates all views: see updateKeys.
type view struct {
	request  lease.Request // selector, schemes and target
	items    []*item
	lastUsed uint64
}

// item is a proxy in a view.
type item struct {
	rank
	proxy *proxy
	view  *view
	index int // in view.items
}

// Len, Less, Swap, Push and Pop make it a heap.Interface.
func (v *view) Len() int { return len(v.items) }

// Less is for package heap. Names decide between proxies that were never granted;
// the order of unavailable ones does not matter.
func (v *view) Less(i, j int) bool {
	a, b := v.items[i], v.items[j]
	if a.rank == b.rank && a.since < classes && a.rank != unavailable {
		return cmp.Or(cmp.Compare(a.proxy.Proxy, b.proxy.Proxy), cmp.Compare(a.proxy.ProxyUID, b.proxy.ProxyUID)) < 0
	}
	return a.before(b.rank)
}

// Swap is for package heap.
func (v *view) Swap(i, j int) {
	v.items[i], v.items[j] = v.items[j], v.items[i]
	v.items[i].index, v.items[j].index = i, j
}

// Push is for package heap.
func (v *view) Push(x any) {
	it := x.(*item)
	it.index = len(v.items)
	v.items = append(v.items, it)
}

// Pop is for package heap.
func (v *view) Pop() any { return popLast(&v.items) }

func newView(req lease.Request, members []*proxy) *view {
	v := &view{request: req, items: make([]*item, 0, len(members))}
	for _, p := range members {
		v.Push(v.newItem(p))
	}
	heap.Init(v)
	return v
}

func (v *view) newItem(p *proxy) *item {
	it := &item{rank: p.rank(v.request.Target), proxy: p, view: v}
	p.items = append(p.items, it)
	return it
}

func (v *view) insert(p *proxy) { heap.Push(v, v.newItem(p)) }

func (v *view) remove(it *item) {
	heap.Remove(v, it.index)
	it.proxy.items = slices.DeleteFunc(it.proxy.items, func(other *item) bool { return other == it })
}

// updateKeys corrects the proxy's ranks in its views.
func (p *proxy) updateKeys() {
	for _, it := range p.items {
		it.update()
	}
}

func (it *item) update() {
	if now := it.proxy.rank(it.view.request.Target); now != it.rank {
		it.rank = now
		heap.Fix(it.view, it.index)
	}
}

// best returns the preferred proxy that is allowed, nil when there is none, and how
// many preferred ones it skipped.
func (v *view) best(allowed func(*proxy) bool) (found *proxy, skipped int) {
	var aside []*item
	for len(v.items) > 0 && v.items[0].rank != unavailable {
		top := v.items[0]
		if top.rank != top.proxy.rank(v.request.Target) {
			top.update()
			continue
		}
		if allowed(top.proxy) {
			found = top.proxy
			break
		}
		aside = append(aside, heap.Pop(v).(*item))
	}
	for _, it := range aside {
		heap.Push(v, it)
	}
	return found, len(aside)
}
