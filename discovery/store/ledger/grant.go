package ledger

import (
	"crypto/rand"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Acquire grants a lease on the preferred proxy that can be leased, or finds
// the one that was granted under the request's Key. Errors are
// *lease.NoMatchError, lease.ErrKeyReused and *lease.LimitError.
func (g *Ledger) Acquire(now time.Time, req lease.Request) (lease.Lease, error) {
	l, e, err := g.decide(now, req)
	if err != nil || e == nil {
		return l, err
	}
	return g.grant(e, req, now), nil
}

// decide returns the lease that was granted under the request's Key, else the
// proxy to grant.
func (g *Ledger) decide(now time.Time, req lease.Request) (lease.Lease, *entry, error) {
	g.Advance(now)
	if l, found, err := g.replay(req); found || err != nil {
		return l, nil, err
	}
	if full := g.sessionsFull(req); full != nil {
		return lease.Lease{}, nil, full
	}
	if bound := g.bound(req); bound != nil {
		if !bound.hasRoom() {
			return lease.Lease{}, nil, &lease.NoMatchError{Stats: g.explain(req, bound)}
		}
		return lease.Lease{}, bound, nil
	}
	best := g.choose(req)
	if best == nil {
		return lease.Lease{}, nil, &lease.NoMatchError{Stats: g.refusals.of(g, req, now)}
	}
	return lease.Lease{}, best, nil
}

// replay finds the running lease that was granted under the request's Key.
func (g *Ledger) replay(req lease.Request) (l lease.Lease, found bool, err error) {
	if req.Key == "" {
		return lease.Lease{}, false, nil
	}
	h := g.keys[owned{req.Holder, req.Key}]
	switch {
	case h == nil || g.ended(h.Lease) != "":
		return lease.Lease{}, false, nil
	case h.Fingerprint != req.Fingerprint:
		return lease.Lease{}, false, lease.ErrKeyReused
	}
	l = h.Lease
	l.Replayed = true
	return l, true, nil
}

func (g *Ledger) grant(e *entry, req lease.Request, now time.Time) lease.Lease {
	g.fence++
	h := &held{entry: e, Record: Record{Key: req.Key, Fingerprint: req.Fingerprint, Lease: lease.Lease{
		ID:           rand.Text(), // at least 128 bits, RFC 4648 base32
		Instance:     e.Instance,
		Proxy:        e.Proxy,
		Holder:       req.Holder,
		Session:      req.Session,
		Target:       req.Target,
		TTL:          req.TTL,
		GrantedAt:    now,
		ExpiresAt:    now.Add(req.TTL),
		FencingToken: g.fence,
	}}}
	g.granted(e, g.fence)
	g.bind(h.Lease)
	g.hold(h)
	g.journal.PutLease(h.Record)
	g.revision++
	return h.Lease
}

// offeredAs returns the proxy whose present instance that is, nil when there is
// none.
func (g *Ledger) offeredAs(i lease.Instance) *entry {
	e := g.proxies[i.ProxyUID]
	if e == nil || e.Instance != i {
		return nil
	}
	return e
}

// hold makes a lease count until its expiry.
func (g *Ledger) hold(h *held) {
	g.leases[h.ID] = h
	if h.Key != "" {
		g.keys[owned{h.Holder, h.Key}] = h
	}
	if h.entry == nil {
		if e := g.offeredAs(h.Instance); e != nil {
			h.sitOn(e)
		}
	}
	g.holdingOf(h).add(h)
	g.attach(h)
	g.roll.add(h)
	g.due.add(&h.deadline, h, h.ExpiresAt, nil)
	g.refusals.changed(g, h.entry)
}

// Renew has a lease run for ttl from now, if that is longer than it runs
// anyway. Errors are lease.ErrUnknown and *lease.EndedError.
func (g *Ledger) Renew(now time.Time, id string, ttl time.Duration) (lease.Lease, error) {
	if _, err := g.Get(now, id); err != nil {
		return lease.Lease{}, err
	}
	h := g.leases[id]
	if until := now.Add(ttl); until.After(h.ExpiresAt) {
		h.TTL, h.ExpiresAt = ttl, until
		g.due.move(&h.deadline, until)
		g.journal.PutLease(h.Record)
		g.extend(h.Lease)
		g.revision++
	}
	return h.Lease, nil
}

// Get returns a lease that can be used. Errors are lease.ErrUnknown and
// *lease.EndedError.
func (g *Ledger) Get(now time.Time, id string) (lease.Lease, error) {
	g.Advance(now)
	h := g.leases[id]
	if x := g.expired.byID[id]; x != nil {
		return lease.Lease{}, &lease.EndedError{Reason: lease.EndExpired, Lease: x.record().Lease}
	}
	if h == nil {
		return lease.Lease{}, lease.ErrUnknown
	}
	if reason := g.ended(h.Lease); reason != "" {
		return lease.Lease{}, &lease.EndedError{Reason: reason, Lease: h.Lease}
	}
	return h.Lease, nil
}

// ended says why a lease that runs leads nowhere, as far as the fleet is known.
func (g *Ledger) ended(l lease.Lease) lease.EndReason {
	if !g.told {
		return ""
	}
	e := g.proxies[l.Instance.ProxyUID]
	if e == nil {
		return lease.EndDeleted
	}
	return lease.Ended(l, e.Offer)
}

// Release ends a lease, and reports whether there was one to end. Places are
// free at once.
func (g *Ledger) Release(now time.Time, id string) bool {
	g.Advance(now)
	h := g.leases[id]
	known := g.drop(id)
	if h != nil {
		g.shorten(h.Lease, now)
	}
	return known
}
