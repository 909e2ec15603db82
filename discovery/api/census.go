package api

import (
	"encoding/json"
	"slices"
	"sync"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
)

// maxCensus is how many selectors a census remembers.
const maxCensus = 64

// census remembers, for as long as the fleet is the same, how many of the proxies
// that match a selector it does not offer, and why. To find that out takes a look
// at all of them, and crawlers whose proxies are all out ask again and again.
type census struct {
	mu    sync.Mutex
	list  []*fleet.Proxy
	alive string // the shards whose verdicts were believed then
	known map[string]matched
}

// of is match.
func (c *census) of(snap fleet.Snapshot, req acquireRequest) *matched {
	// Maps of strings always encode, in the order of their keys.
	text, _ := json.Marshal(req.Selector)
	key := string(text)
	m, known := c.find(snap, key)
	if !known {
		all := req
		all.Exclude = nil
		m = *match(snap, all)
		c.note(snap, key, m)
	}
	if !m.exclude(snap, req) {
		return match(snap, req)
	}
	return &m
}

// find returns what is known of this very fleet, and forgets what was of another.
func (c *census) find(snap fleet.Snapshot, key string) (matched, bool) {
	alive := snap.Freshness.Alive()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || alive != c.alive || !sameList(c.list, snap.Proxies) || len(c.known) >= maxCensus {
		c.list, c.alive, c.known = snap.Proxies, alive, map[string]matched{}
	}
	m, known := c.known[key]
	return m, known
}

func (c *census) note(snap fleet.Snapshot, key string, m matched) {
	alive := snap.Freshness.Alive()
	c.mu.Lock()
	defer c.mu.Unlock()
	if alive == c.alive && sameList(c.list, snap.Proxies) {
		c.known[key] = m
	}
}

// exclude takes proxies out that the request excludes. It returns false when it is
// not known any more whose stale verdict to tell of.
func (m *matched) exclude(snap fleet.Snapshot, req acquireRequest) bool {
	for i, name := range req.Exclude {
		p := snap.Find(name)
		if p == nil || !p.Matches(req.Selector) || slices.Contains(req.Exclude[:i], name) {
			continue
		}
		if p == m.stale {
			return false
		}
		m.counts.Excluded++
		if ok, reason := fleet.Leasable(p, snap.Freshness); !ok {
			m.count(p, reason, -1)
		}
	}
	return true
}
