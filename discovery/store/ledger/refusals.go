package ledger

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

const (
	// maxRefusals is how many refusals are remembered.
	maxRefusals = 64
	// manyProxies that match make a refusal dear, so that for toldAgain it is
	// told again although something has changed.
	manyProxies = 1000
	toldAgain   = 100 * time.Millisecond
)

// refusals remembers why requests were refused. To say so takes a look at every
// proxy that matches, and when a place becomes free all who wait for one ask at
// once: one gets it, and the others must not hold up everybody while each is told
// the same.
//
// What is remembered is told for as long as nothing changes. Of many proxies one
// changes all the time, and then it is told for a moment longer: its counts are as
// old as that, but nothing becomes free before its FreeAt that it does not know
// of, so that nobody who waits sleeps for too long.
type refusals struct {
	known map[string]refusal // by viewKey; none from before the fleet last changed
}

type refusal struct {
	request  lease.Request // as far as it matters
	stats    lease.Stats
	revision uint64
	at       time.Time
}

// stands reports whether a refusal may be told again.
func (r refusal) stands(revision uint64, now time.Time) bool {
	if r.revision == revision {
		return true
	}
	free := r.stats.FreeAt()
	return r.lasts(now) && (free.IsZero() || free.After(now))
}

// lasts reports whether it may be told again after a change.
func (r refusal) lasts(now time.Time) bool {
	return r.stats.Considered >= manyProxies && now.Sub(r.at) < toldAgain
}

// of explains the refusal of a request that excludes nothing or is looked at anew.
func (r *refusals) of(g *Ledger, req lease.Request, now time.Time) lease.Stats {
	if len(req.Exclude) > 0 {
		return g.explain(req, g.matching(req)...)
	}
	key := viewKey(req.Selector, req.Target)
	if found, ok := r.known[key]; ok && found.stands(g.revision, now) {
		return found.stats
	}
	stats := g.explain(req, g.matching(req)...)
	if r.known == nil || len(r.known) >= maxRefusals {
		r.known = map[string]refusal{}
	}
	r.known[key] = refusal{lease.Request{Selector: req.Selector, Target: req.Target}, stats, g.revision, now}
	return stats
}

// changed notes when a proxy whose leases or cooldowns have changed is free again:
// maybe before all that were looked at.
func (r *refusals) changed(g *Ledger, e *entry) {
	if e == nil {
		return
	}
	for key, known := range r.known {
		if !known.lasts(g.now) {
			delete(r.known, key)
			continue
		}
		if !g.matches(e, known.request) {
			continue
		}
		free := g.explain(known.request, e).FreeAt()
		if first := known.stats.FreeAt(); !free.IsZero() && (first.IsZero() || free.Before(first)) {
			known.stats.CapacityFreeAt = free
			r.known[key] = known
		}
	}
}

// forget is for when the fleet has changed.
func (r *refusals) forget() { r.known = nil }
