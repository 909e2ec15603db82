package ledger

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// limits keep the index small, whatever clients ask for.
type limits struct {
	// views at the most.
	views int
	// placesPerProxy: all views together have at most so many places for each
	// Proxy there is.
	placesPerProxy int
	// passedOver is how many proxies that cool for a target a search may have
	// to pass over before the target gets a view of its own.
	passedOver int
	// remembered is how many selectors and targets are remembered that were
	// asked for once. Only what is asked for again is worth a view.
	remembered int
}

func defaultLimits() limits {
	return limits{views: 512, placesPerProxy: 24, passedOver: 8, remembered: 1024}
}

// index is the views that there are.
type index struct {
	limits limits
	views  map[string]*view
	once   map[string]struct{} // asked for once of late
	places int                 // in all views
	clock  uint64              // counts uses
}

func newIndex() index {
	return index{limits: defaultLimits(), views: map[string]*view{}, once: map[string]struct{}{}}
}

// viewKey names the view of a selector for a target. Clients choose the text of
// both: lengths keep apart what a separator would let them mix up.
func viewKey(selector map[string]string, target string) string {
	names := make([]string, 0, 8)
	for name := range selector {
		names = append(names, name)
	}
	slices.Sort(names)
	key := appendText(nil, target)
	for _, name := range names {
		key = appendText(appendText(key, name), selector[name])
	}
	return string(key)
}

func appendText(key []byte, text string) []byte {
	return append(binary.AppendUvarint(key, uint64(len(text))), text...)
}

// choose returns the preferred proxy that can be leased, nil when there is
// none.
func (g *Ledger) choose(req lease.Request) *entry {
	allowed := func(e *entry) bool { return !slices.Contains(req.Exclude, e.Proxy) }
	if req.Target != "" {
		if v := g.index.views[viewKey(req.Selector, req.Target)]; v != nil {
			return g.ask(v, allowed)
		}
		anyTarget := allowed
		allowed = func(e *entry) bool { return !e.cools(req.Target) && anyTarget(e) }
	}
	v := g.view(req.Selector, "")
	if v == nil {
		return g.scan(req)
	}
	v.used = g.index.tick()
	best, passed := v.best(allowed)
	if passed > g.index.limits.passedOver+len(req.Exclude) {
		g.view(req.Selector, req.Target)
	}
	return best
}

func (g *Ledger) ask(v *view, allowed func(*entry) bool) *entry {
	v.used = g.index.tick()
	best, _ := v.best(allowed)
	return best
}

func (x *index) tick() uint64 {
	x.clock++
	return x.clock
}

// view returns the view of a selector for a target, nil when it is not worth
// one.
func (g *Ledger) view(selector map[string]string, target string) *view {
	key := viewKey(selector, target)
	if v := g.index.views[key]; v != nil {
		return v
	}
	if !g.index.again(key) {
		return nil
	}
	members := g.members(selector)
	if !g.makeRoom(len(members)) {
		return nil
	}
	v := newView(maps.Clone(selector), target, members)
	v.used = g.index.tick()
	g.index.places += len(members)
	g.index.views[key] = v
	return v
}

// members lists the proxies that have the attributes, leasable or not.
func (g *Ledger) members(selector map[string]string) []*entry {
	var out []*entry
	if v := g.index.views[viewKey(selector, "")]; v != nil {
		for _, e := range v.entries {
			if e != nil {
				out = append(out, e)
			}
		}
		return out
	}
	for _, e := range g.proxies {
		if lease.HasAttributes(e.Attributes, selector) {
			out = append(out, e)
		}
	}
	return out
}

// again reports whether the key was asked for before, lately.
func (x *index) again(key string) bool {
	if _, ok := x.once[key]; ok {
		delete(x.once, key)
		return true
	}
	if len(x.once) >= x.limits.remembered {
		clear(x.once)
	}
	x.once[key] = struct{}{}
	return false
}

// makeRoom drops views that were not asked for the longest time until there is
// room for one with so many places.
func (g *Ledger) makeRoom(places int) bool {
	most := g.index.limits.placesPerProxy * len(g.proxies)
	if places > most {
		return false
	}
	for g.index.places+places > most || len(g.index.views) >= g.index.limits.views {
		oldest := ""
		for key, v := range g.index.views {
			if oldest == "" || v.used < g.index.views[oldest].used {
				oldest = key
			}
		}
		g.dropView(oldest)
	}
	return true
}

// dropView drops a view.
func (g *Ledger) dropView(key string) {
	v := g.index.views[key]
	for seat, e := range v.entries {
		if e != nil {
			g.leave(v, int32(seat))
		}
	}
	delete(g.index.views, key)
}

func (g *Ledger) join(v *view, e *entry) {
	v.join(e)
	g.index.places++
}

func (g *Ledger) leave(v *view, seat int32) {
	v.leave(seat)
	g.index.places--
}

// offered puts an offer in the place of the one before.
func (g *Ledger) offered(o *lease.Offer) {
	e := g.proxies[o.ProxyUID]
	switch {
	case e == nil:
		e = &entry{}
		e.places = e.near[:0]
		g.proxies[o.ProxyUID] = e
		g.link(e, o)
		g.enter(e)
	case maps.Equal(e.Attributes, o.Attributes):
		g.link(e, o)
		e.touch()
	default:
		g.exit(e)
		g.link(e, o)
		g.enter(e)
	}
}

// link gives a proxy an offer, and what the ledger holds about that.
func (g *Ledger) link(e *entry, o *lease.Offer) {
	if e.Offer != nil && e.Instance != o.Instance {
		g.strand(e)
	}
	e.Offer, e.Instance, e.Proxy = o, o.Instance, o.Proxy
	g.adopt(e)
	e.cooling = g.cooling[e.ProxyUID]
	e.class = int32(lease.LatencyClass(e.LatencyMillis))
	e.room = 0
	if e.Leasable {
		e.room = int32(min(e.MaxLeases, math.MaxInt32))
	}
}

// enter puts a proxy into the views that it matches.
func (g *Ledger) enter(e *entry) {
	for _, v := range g.index.views {
		if lease.HasAttributes(e.Attributes, v.selector) {
			g.join(v, e)
		}
	}
}

// exit takes a proxy out of all views.
func (g *Ledger) exit(e *entry) {
	for len(e.places) > 0 {
		last := e.places[len(e.places)-1]
		g.leave(last.view, last.seat)
	}
}

// unlink is for when all that the ledger holds is about to change.
func (g *Ledger) unlink() {
	limits := g.index.limits
	g.index = newIndex()
	g.index.limits = limits
	g.stranded = map[lease.Instance]*holding{}
	for _, e := range g.proxies {
		e.places, e.held, e.cooling = e.near[:0], nil, nil
	}
}
