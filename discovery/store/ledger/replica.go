package ledger

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// The methods of this file are for a ledger that follows another authority: it
// is asked what to choose, and told what became of it. They tell no journal.

// Choice is what a ledger would grant.
type Choice struct {
	// Offer to grant a lease on, nil when Replayed is set.
	Offer *lease.Offer
	// Replayed is the lease that was granted under the request's Key.
	Replayed *lease.Lease
	// Superseded is the lease that runs under the request's Key and leads
	// nowhere, "" when there is none.
	Superseded string
	// Bound is where the request's session is, zero when it is nowhere.
	Bound lease.Instance
}

// Choose says what Acquire would grant, and grants nothing. Errors are those of
// Acquire.
func (g *Ledger) Choose(now time.Time, req lease.Request) (Choice, error) {
	l, e, err := g.decide(now, req)
	switch {
	case err != nil:
		return Choice{}, err
	case e == nil:
		return Choice{Replayed: &l}, nil
	}
	c := Choice{Offer: e.Offer}
	if h := g.keys[owned{req.Holder, req.Key}]; req.Key != "" && h != nil {
		c.Superseded = h.ID
	}
	if s := g.sessionOf(lease.Lease{Holder: req.Holder, Session: req.Session}); s != nil {
		c.Bound = s.instance
	}
	return c, nil
}

// Put makes the ledger hold a lease as it is told, in place of what it held
// under that id. The session stays where it is: see PutSession, which comes
// first.
func (g *Ledger) Put(now time.Time, r Record) {
	g.Advance(now)
	g.drop(r.ID)
	g.fence = max(g.fence, r.FencingToken)
	if e := g.proxies[r.Instance.ProxyUID]; e != nil {
		g.granted(e, r.FencingToken)
	}
	g.hold(&held{Record: r})
	g.revision++
	g.Advance(now) // it may be over
}

// Drop makes the ledger forget a lease.
func (g *Ledger) Drop(now time.Time, id string) {
	g.Advance(now)
	g.drop(id)
}

// drop forgets a lease, running or not, and reports whether there was one.
func (g *Ledger) drop(id string) bool {
	if x := g.expired.byID[id]; x != nil {
		g.forgetExpired(x)
		return true
	}
	h := g.leases[id]
	if h == nil {
		return false
	}
	g.end(h)
	g.journal.ForgetLease(h.Record)
	g.revision++
	return true
}

// PutSession makes the ledger hold a session as it is told.
func (g *Ledger) PutSession(now time.Time, x Session) {
	g.Advance(now)
	if !x.Until.After(now) {
		return
	}
	g.putSession(x)
	g.revision++
}

// PutCooldown starts or prolongs a cooldown as the ledger is told.
func (g *Ledger) PutCooldown(now time.Time, x Cooldown) {
	g.Advance(now)
	if x.Until.After(now) {
		g.cool(x)
	}
}

// Find returns a lease that is remembered, running or not. Of one that has expired
// its Session, TTL, GrantedAt, Key and Fingerprint are not.
func (g *Ledger) Find(now time.Time, id string) (Record, bool) {
	g.Advance(now)
	return g.find(id)
}
