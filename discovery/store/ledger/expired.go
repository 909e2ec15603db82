package ledger

import (
	"cmp"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// A lease that has expired is remembered for the window, since reports tend to come
// late. Where leases are short and many, that would be most of what the ledger
// holds: little is kept of each, and the newest Limits.Expired alone.

// expired is what is kept of a lease that has expired: what a late report needs,
// and what its holder is told.
type expired struct {
	id                    string
	proxy, holder, target string
	lease.Instance
	at         time.Time // its expiry
	fence      uint64
	prev, next *expired
}

func newExpired(r Record) *expired {
	return &expired{
		id: r.ID, proxy: r.Proxy, holder: r.Holder, target: r.Target,
		Instance: r.Instance, at: r.ExpiresAt, fence: r.FencingToken,
	}
}

// record is what is left of the lease's.
func (x *expired) record() Record {
	return Record{Lease: lease.Lease{
		ID: x.id, Instance: x.Instance, Proxy: x.proxy, Holder: x.holder, Target: x.target,
		ExpiresAt: x.at, FencingToken: x.fence,
	}}
}

// before orders by expiry, so that all stores forget the same one first.
func (x *expired) before(other *expired) bool {
	return cmp.Or(x.at.Compare(other.at), cmp.Compare(x.id, other.id)) < 0
}

// memories are expired leases, in a list from the oldest to the newest.
type memories struct {
	byID           map[string]*expired
	oldest, newest *expired
}

func newMemories() memories { return memories{byID: map[string]*expired{}} }

// add enters a lease. Leases expire in order, but for replicas, which may hear of
// one when it is over.
func (m *memories) add(x *expired) {
	m.byID[x.id] = x
	x.prev = m.newest
	for x.prev != nil && x.before(x.prev) {
		x.prev = x.prev.prev
	}
	if x.prev == nil {
		x.next, m.oldest = m.oldest, x
	} else {
		x.next, x.prev.next = x.prev.next, x
	}
	if x.next == nil {
		m.newest = x
	} else {
		x.next.prev = x
	}
}

func (m *memories) remove(x *expired) {
	delete(m.byID, x.id)
	if x.prev == nil {
		m.oldest = x.next
	} else {
		x.prev.next = x.next
	}
	if x.next == nil {
		m.newest = x.prev
	} else {
		x.next.prev = x.prev
	}
	x.prev, x.next = nil, nil
}

// lapse ends a lease that has expired, and remembers it for the window.
func (g *Ledger) lapse(h *held) {
	g.end(h)
	g.expired.add(newExpired(h.Record))
	if len(g.expired.byID) > g.limits.Expired {
		g.forgetExpired(g.expired.oldest)
	}
}

// forgetExpired drops a lease that has expired.
func (g *Ledger) forgetExpired(x *expired) {
	g.expired.remove(x)
	g.journal.ForgetLease(x.record())
	g.revision++
}

// forgetAt is when the first expired lease is forgotten, zero when there is none.
func (g *Ledger) forgetAt() time.Time {
	if g.expired.oldest == nil {
		return time.Time{}
	}
	return g.expired.oldest.at.Add(g.window)
}

// end has a lease count no longer, and drops it. The journal is told nothing.
func (g *Ledger) end(h *held) {
	g.due.remove(&h.deadline)
	g.stop(h)
	delete(g.leases, h.ID)
	if key := (owned{h.Holder, h.Key}); g.keys[key] == h {
		delete(g.keys, key)
	}
}

// find returns what is remembered of a lease, running or not.
func (g *Ledger) find(id string) (r Record, known bool) {
	if h := g.leases[id]; h != nil {
		return h.Record, true
	}
	if x := g.expired.byID[id]; x != nil {
		return x.record(), true
	}
	return Record{}, false
}
