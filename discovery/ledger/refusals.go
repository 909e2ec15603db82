package ledger

import (
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// maxRefusals is how many refusals are remembered.
const maxRefusals = 64

// refusals remembers why requests were refused for as long as nothing changes. To
// say so takes a look at every proxy that matches, and when a place becomes free
// all who wait for one ask at once: one gets it, and the others must not hold up
// everybody while each is told the same.
type refusals struct {
	revision uint64
	known    map[string]refusal // by viewKey
}

type refusal struct {
	request lease.Request // as far as it matters
	stats   lease.Stats
}

// of explains the refusal of a request that excludes nothing or is looked at anew.
func (r *refusals) of(g *Ledger, req lease.Request) lease.Stats {
	if len(req.Exclude) > 0 {
		return g.explain(req, g.matching(req)...)
	}
	if r.revision != g.revision || len(r.known) >= maxRefusals {
		r.revision, r.known = g.revision, nil
	}
	key := viewKey(req.Selector, req.Target)
	if found, ok := r.known[key]; ok {
		return found.stats
	}
	stats := g.explain(req, g.matching(req)...)
	if r.known == nil {
		r.known = map[string]refusal{}
	}
	r.known[key] = refusal{lease.Request{Selector: req.Selector, Target: req.Target}, stats}
	return stats
}
