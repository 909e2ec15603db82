package ledger

import (
	"encoding/binary"
	"maps"
	"slices"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// indexLimits bound the memory of the index for any requests.
type indexLimits struct {
	views int
	// itemsPerProxy bounds the items of all views together, for each Proxy.
	itemsPerProxy int
	// skipped is how many cooling proxies a search may skip before its target
	// gets a view.
	skipped int
	// seenOnce is how many selectors and targets are kept that were requested
	// once. Only a repeated one gets a view.
	seenOnce int
}

var defaultIndexLimits = indexLimits{views: 512, itemsPerProxy: 24, skipped: 8, seenOnce: 1024}

// index is an LRU cache of views.
type index struct {
	limits   indexLimits
	views    map[string]*view
	seenOnce map[string]struct{}
	items    int    // in all views
	uses     uint64 // the clock of view.lastUsed
}

func newIndex() index {
	return index{limits: defaultIndexLimits, views: map[string]*view{}, seenOnce: map[string]struct{}{}}
}

// viewKey names the view of a request's selector and schemes for a target. Clients
// choose the texts, so each text carries its length: a separator would let them
// collide.
func viewKey(req lease.Request, target string) string {
	names := make([]string, 0, 8)
	for name := range req.Selector {
		names = append(names, name)
	}
	slices.Sort(names)
	key := binary.AppendUvarint(appendText(nil, target), uint64(len(req.Schemes)))
	for _, scheme := range req.Schemes {
		key = appendText(key, scheme)
	}
	for _, name := range names {
		key = appendText(appendText(key, name), req.Selector[name])
	}
	return string(key)
}

func appendText(key []byte, text string) []byte {
	return append(binary.AppendUvarint(key, uint64(len(text))), text...)
}

// find returns a view and marks it as used, nil when there is none.
func (x *index) find(key string) *view {
	v := x.views[key]
	if v != nil {
		x.uses++
		v.lastUsed = x.uses
	}
	return v
}

// view returns the view of a request's selector and schemes for a target. It builds the
// view when the index has seen the request before, and returns nil otherwise.
func (g *Ledger) view(req lease.Request, target string) *view {
	key := viewKey(req, target)
	if v := g.index.find(key); v != nil || !g.index.seenBefore(key) {
		return v
	}
	members := g.members(req)
	if !g.makeRoom(len(members)) {
		return nil
	}
	g.index.views[key] = newView(lease.Request{Selector: maps.Clone(req.Selector), Schemes: slices.Clone(req.Schemes), Target: target}, members)
	g.index.items += len(members)
	return g.index.find(key)
}

// members lists the proxies that match the request, leasable or not.
func (g *Ledger) members(req lease.Request) []*proxy {
	var out []*proxy
	if v := g.index.views[viewKey(req, "")]; v != nil {
		for _, it := range v.items {
			out = append(out, it.proxy)
		}
		return out
	}
	for _, p := range g.proxies {
		if req.Matches(p.Attributes, p.Scheme) {
			out = append(out, p)
		}
	}
	return out
}

// seenBefore reports whether the key was requested before, and records it.
func (x *index) seenBefore(key string) bool {
	if _, ok := x.seenOnce[key]; ok {
		delete(x.seenOnce, key)
		return true
	}
	if len(x.seenOnce) >= x.limits.seenOnce {
		clear(x.seenOnce)
	}
	x.seenOnce[key] = struct{}{}
	return false
}

// makeRoom evicts the least recently used views until one with so many items fits,
// and reports whether it does.
func (g *Ledger) makeRoom(items int) bool {
	most := g.index.limits.itemsPerProxy * len(g.proxies)
	if items > most {
		return false
	}
	for g.index.items+items > most || len(g.index.views) >= g.index.limits.views {
		oldest := ""
		for key, v := range g.index.views {
			if oldest == "" || v.lastUsed < g.index.views[oldest].lastUsed {
				oldest = key
			}
		}
		v := g.index.views[oldest]
		for len(v.items) > 0 {
			g.removeItem(v.items[len(v.items)-1])
		}
		delete(g.index.views, oldest)
	}
	return true
}

func (g *Ledger) removeItem(it *item) {
	it.view.remove(it)
	g.index.items--
}

// insertIntoViews inserts a proxy into the views that it matches.
func (g *Ledger) insertIntoViews(p *proxy) {
	for _, v := range g.index.views {
		if v.request.Matches(p.Attributes, p.Scheme) {
			v.insert(p)
			g.index.items++
		}
	}
}

// removeFromViews removes a proxy from all views.
func (g *Ledger) removeFromViews(p *proxy) {
	for len(p.items) > 0 {
		g.removeItem(p.items[len(p.items)-1])
	}
}
