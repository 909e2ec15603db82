package ledger

import (
	"cmp"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// An expired lease is kept for the cooldown time, since reports arrive late. With
// many short leases that would be most of the memory, so only the newest
// Limits.Expired are kept, and little of each.

// expiredLease is what a late report and the holder's error message need.
type expiredLease struct {
	id                    string
	proxy, holder, target string
	lease.Instance
	at         time.Time // its expiry
	fence      uint64
	prev, next *expiredLease
}

func newExpired(r Record) *expiredLease {
	return &expiredLease{
		id: r.ID, proxy: r.Proxy, holder: r.Holder, target: r.Target,
		Instance: r.Instance, at: r.ExpiresAt, fence: r.FencingToken,
	}
}

func (x *expiredLease) record() Record {
	return Record{Lease: lease.Lease{
		ID: x.id, Instance: x.Instance, Proxy: x.proxy, Holder: x.holder, Target: x.target,
		ExpiresAt: x.at, FencingToken: x.fence,
	}}
}

// before orders by expiry, then by id, so that all stores evict the same lease.
func (x *expiredLease) before(other *expiredLease) bool {
	return cmp.Or(x.at.Compare(other.at), cmp.Compare(x.id, other.id)) < 0
}

// expiredList is a linked list from the oldest to the newest.
type expiredList struct {
	byID           map[string]*expiredLease
	oldest, newest *expiredLease
}

// add inserts a lease. Leases expire in order; only replicas receive them late.
func (m *expiredList) add(x *expiredLease) {
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

func (m *expiredList) remove(x *expiredLease) {
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

// expire moves a running lease to the expired ones.
func (g *Ledger) expire(l *activeLease) {
	g.remove(l)
	g.expired.add(newExpired(l.Record))
	if len(g.expired.byID) > g.limits.Expired {
		g.removeExpired(g.expired.oldest)
	}
}

func (g *Ledger) removeExpired(x *expiredLease) {
	g.expired.remove(x)
	g.journal.DeleteLease(x.record())
	g.revision++
}

// reportsEnd is when the oldest expired lease stops taking reports, zero when there
// is none.
func (g *Ledger) reportsEnd() time.Time {
	if g.expired.oldest == nil {
		return time.Time{}
	}
	return g.expired.oldest.at.Add(g.cooldown)
}
