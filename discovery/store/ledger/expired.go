package ledger

import "gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"

// An expired lease is kept for the cooldown time, since reports arrive late. With
// many short leases that would be most of the memory, so only the newest
// Limits.Expired are kept, and little of each.

// expiredLease is what a late report and the holder's error message need. Its deadline
// is the cooldown time after its expiry.
type expiredLease struct {
	deadline
	id                    string
	proxy, holder, target string
	lease.Instance
	fence uint64
}

// expiredRecord is the record of an expired lease.
func (g *Ledger) expiredRecord(x *expiredLease) Record {
	return Record{Lease: lease.Lease{
		ID: x.id, Instance: x.Instance, Proxy: x.proxy, Holder: x.holder, Target: x.target,
		ExpiresAt: x.at.Add(-g.cooldown), FencingToken: x.fence,
	}}
}

// expire moves a running lease to the expired ones.
func (g *Ledger) expire(l *activeLease) {
	g.remove(l)
	x := &expiredLease{id: l.ID, proxy: l.Proxy, holder: l.Holder, target: l.Target, Instance: l.Instance, fence: l.FencingToken}
	g.expired[x.id] = x
	g.deadlines.add(&x.deadline, x, l.ExpiresAt.Add(g.cooldown), nil)
	if len(g.expired) > g.limits.Expired {
		g.removeExpired(g.deadlines[ofExpired].first().owner.(*expiredLease))
	}
}

func (g *Ledger) removeExpired(x *expiredLease) {
	g.deadlines.remove(&x.deadline)
	delete(g.expired, x.id)
	g.journal.DeleteLease(g.expiredRecord(x))
}
