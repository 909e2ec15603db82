package ledger

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

const (
	maxCachedStats = 64
	// With manyProxies or more, explain is slow, and cached stats are used for
	// staleFor after a change.
	manyProxies = 1000
	staleFor    = 100 * time.Millisecond
)

// statsCache caches the stats of refused requests. explain visits every matching
// proxy under the store's lock (3 ms with 10,000), and each freed slot makes every
// waiting client retry at once.
//
// Stats are valid until anything changes. Stats of many proxies may be stale by
// staleFor. Their counts are then out of date, but FreeAt is kept correct: a waiting
// client never sleeps for too long.
type statsCache struct {
	byRequest map[string]cachedStats // by viewKey
}

type cachedStats struct {
	request  lease.Request // selector, schemes and target
	stats    lease.Stats
	revision uint64
	at       time.Time
}

// valid reports whether the stats can be returned now.
func (c cachedStats) valid(revision uint64, now time.Time) bool {
	if c.revision == revision {
		return true
	}
	free := c.stats.FreeAt()
	return c.toleratesStale(now) && (free.IsZero() || free.After(now))
}

// toleratesStale reports whether the stats can be returned after a change.
func (c cachedStats) toleratesStale(now time.Time) bool {
	return c.stats.Considered >= manyProxies && now.Sub(c.at) < staleFor
}

// noMatch returns the stats of a refused request. It caches those of requests that
// exclude no proxy.
func (g *Ledger) noMatch(req lease.Request) lease.Stats {
	if len(req.Exclude) > 0 {
		return explain(req, g.matching(req)...)
	}
	key := viewKey(req, req.Target)
	if c, ok := g.stats.byRequest[key]; ok && c.valid(g.revision, g.now) {
		return c.stats
	}
	stats := explain(req, g.matching(req)...)
	if g.stats.byRequest == nil || len(g.stats.byRequest) >= maxCachedStats {
		g.stats.byRequest = map[string]cachedStats{}
	}
	g.stats.byRequest[key] = cachedStats{lease.Request{Selector: req.Selector, Schemes: req.Schemes, Target: req.Target}, stats, g.revision, g.now}
	return stats
}

// update lowers FreeAt where a proxy, whose leases or cooldowns have changed, is
// free before all that were counted.
func (c *statsCache) update(p *proxy, now time.Time) {
	if p == nil {
		return
	}
	for key, cached := range c.byRequest {
		if !cached.toleratesStale(now) {
			delete(c.byRequest, key)
			continue
		}
		if !matches(p, cached.request) {
			continue
		}
		free := explain(cached.request, p).FreeAt()
		if first := cached.stats.FreeAt(); !free.IsZero() && (first.IsZero() || free.Before(first)) {
			cached.stats.CapacityFreeAt = free
			c.byRequest[key] = cached
		}
	}
}

func (c *statsCache) clear() { c.byRequest = nil }
