package ledger

import (
	"crypto/rand"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Acquire grants a lease on the preferred proxy that can be leased, or returns the
// running lease of the request's Key. Errors are *lease.NoMatchError,
// lease.ErrKeyReused and *lease.LimitError.
func (g *Ledger) Acquire(now time.Time, req lease.Request) (lease.Lease, error) {
	l, p, err := g.decide(now, req)
	if err != nil || p == nil {
		return l, err
	}
	return g.grant(p, req, now), nil
}

// decide returns the lease that was granted under the request's Key, else the proxy
// to grant.
func (g *Ledger) decide(now time.Time, req lease.Request) (lease.Lease, *proxy, error) {
	g.Advance(now)
	if l, found, err := g.replay(req); found || err != nil {
		return l, nil, err
	}
	if err := g.checkSessionLimit(req); err != nil {
		return lease.Lease{}, nil, err
	}
	if bound := g.sessionProxy(req); bound != nil {
		if !bound.hasRoom() {
			return lease.Lease{}, nil, &lease.NoMatchError{Stats: explain(req, bound)}
		}
		return lease.Lease{}, bound, nil
	}
	best := g.choose(req)
	if best == nil {
		return lease.Lease{}, nil, &lease.NoMatchError{Stats: g.noMatch(req)}
	}
	return lease.Lease{}, best, nil
}

// replay finds the running lease that was granted under the request's Key.
func (g *Ledger) replay(req lease.Request) (l lease.Lease, found bool, err error) {
	if req.Key == "" {
		return lease.Lease{}, false, nil
	}
	x := g.keys[scopedName{req.Holder, req.Key}]
	switch {
	case x == nil || g.ended(x.Lease) != "":
		return lease.Lease{}, false, nil
	case x.Fingerprint != req.Fingerprint:
		return lease.Lease{}, false, lease.ErrKeyReused
	}
	l = x.Lease
	l.Replayed = true
	return l, true, nil
}

func (g *Ledger) grant(p *proxy, req lease.Request, now time.Time) lease.Lease {
	g.fence++
	l := &activeLease{proxy: p, Record: Record{Key: req.Key, Fingerprint: req.Fingerprint, Lease: lease.Lease{
		ID:           rand.Text(), // at least 128 bits, RFC 4648 base32
		Instance:     p.Instance,
		Proxy:        p.Proxy,
		Holder:       req.Holder,
		Session:      req.Session,
		Target:       req.Target,
		TTL:          req.TTL,
		GrantedAt:    now,
		ExpiresAt:    now.Add(req.TTL),
		FencingToken: g.fence,
	}}}
	p.lastGrant = g.fence
	g.bindSession(l.Lease)
	g.insert(l)
	g.journal.PutLease(l.Record)
	g.revision++
	return l.Lease
}

// insert adds a running lease.
func (g *Ledger) insert(l *activeLease) {
	g.leases[l.ID] = l
	if l.Key != "" {
		g.keys[scopedName{l.Holder, l.Key}] = l
	}
	if l.proxy == nil {
		if p := g.offeredAs(l.Instance); p != nil {
			l.attachTo(p)
		}
	}
	g.setOf(l).add(l)
	if s := g.sessionOf(l.Lease); s != nil {
		s.leases = append(s.leases, l)
	}
	g.byFence.add(l)
	g.deadlines.add(&l.deadline, l, l.ExpiresAt, nil)
	g.stats.update(l.proxy, g.now)
}

// remove drops a running lease, without an entry in the journal.
func (g *Ledger) remove(l *activeLease) {
	g.deadlines.remove(&l.deadline)
	delete(g.leases, l.ID)
	if key := (scopedName{l.Holder, l.Key}); g.keys[key] == l {
		delete(g.keys, key)
	}
	g.removeFromSession(l)
	g.byFence.remove(l)
	set, p := g.setOf(l), l.proxy
	set.remove(l)
	l.proxy = nil
	if p != nil {
		p.updateKeys()
		g.stats.update(p, g.now)
	} else if len(set.leases) == 0 {
		delete(g.detached, l.Instance)
	}
}

// Renew extends a lease to ttl from now, and never shortens it. Errors are
// lease.ErrUnknown and *lease.EndedError.
func (g *Ledger) Renew(now time.Time, id string, ttl time.Duration) (lease.Lease, error) {
	if _, err := g.Get(now, id); err != nil {
		return lease.Lease{}, err
	}
	l := g.leases[id]
	if until := now.Add(ttl); until.After(l.ExpiresAt) {
		l.TTL, l.ExpiresAt = ttl, until
		g.deadlines.move(&l.deadline, until)
		g.journal.PutLease(l.Record)
		g.extendSession(l.Lease)
		g.revision++
	}
	return l.Lease, nil
}

// Get returns a lease that can be used. Errors are lease.ErrUnknown and
// *lease.EndedError.
func (g *Ledger) Get(now time.Time, id string) (lease.Lease, error) {
	g.Advance(now)
	r, known := g.find(id)
	if !known {
		return lease.Lease{}, lease.ErrUnknown
	}
	reason := lease.EndExpired
	if g.leases[id] != nil {
		reason = g.ended(r.Lease)
	}
	if reason != "" {
		return lease.Lease{}, &lease.EndedError{Reason: reason, Lease: r.Lease}
	}
	return r.Lease, nil
}

// ended is why a running lease cannot be used as far as the fleet is known, "" when
// it can.
func (g *Ledger) ended(l lease.Lease) lease.EndReason {
	if !g.fleetKnown {
		return ""
	}
	p := g.proxies[l.Instance.ProxyUID]
	if p == nil {
		return lease.EndDeleted
	}
	return lease.Ended(l, p.Offer)
}

// Release ends a lease and frees its slot at once. It reports whether the id was
// known.
func (g *Ledger) Release(now time.Time, id string) bool {
	g.Advance(now)
	l := g.leases[id]
	known := g.drop(id)
	if l != nil {
		g.shortenSession(l.Lease)
	}
	return known
}

// drop removes a lease, running or expired, and reports whether there was one.
func (g *Ledger) drop(id string) bool {
	if x := g.expired[id]; x != nil {
		g.removeExpired(x)
		g.revision++
		return true
	}
	l := g.leases[id]
	if l == nil {
		return false
	}
	g.remove(l)
	g.journal.DeleteLease(l.Record)
	g.revision++
	return true
}

// find returns the record of a lease, running or expired.
func (g *Ledger) find(id string) (r Record, known bool) {
	if l := g.leases[id]; l != nil {
		return l.Record, true
	}
	if x := g.expired[id]; x != nil {
		return g.expiredRecord(x), true
	}
	return Record{}, false
}
