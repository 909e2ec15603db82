package ledger

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// The methods of this file are for a ledger that replicates another authority, such
// as Redis: Choose proposes a grant, and the Put and Drop methods apply what the
// authority decided.

// Choice is what a ledger would grant.
type Choice struct {
	// Offer to grant a lease on, nil when Replayed is set.
	Offer *lease.Offer
	// Replayed is the lease that was granted under the request's Key.
	Replayed *lease.Lease
	// Superseded is the id of the running lease under the request's Key whose
	// instance is gone, "" when there is none.
	Superseded string
	// Bound is the instance of the request's session, zero when it has none.
	Bound lease.Instance
}

// Choose returns what Acquire would grant, and changes nothing. Errors are those of
// Acquire.
func (g *Ledger) Choose(now time.Time, req lease.Request) (Choice, error) {
	l, p, err := g.decide(now, req)
	switch {
	case err != nil:
		return Choice{}, err
	case p == nil:
		return Choice{Replayed: &l}, nil
	}
	c := Choice{Offer: p.Offer}
	if x := g.keys[scopedName{req.Holder, req.Key}]; req.Key != "" && x != nil {
		c.Superseded = x.ID
	}
	if s := g.sessionOf(lease.Lease{Holder: req.Holder, Session: req.Session}); s != nil {
		c.Bound = s.instance
	}
	return c, nil
}

// Put adds a lease, or replaces the one with its id. It leaves the session as it is:
// call PutSession first.
func (g *Ledger) Put(now time.Time, r Record) {
	g.Advance(now)
	g.drop(r.ID)
	g.fence = max(g.fence, r.FencingToken)
	if p := g.proxies[r.Instance.ProxyUID]; p != nil {
		p.lastGrant = max(p.lastGrant, r.FencingToken)
	}
	g.insert(&activeLease{Record: r})
	g.revision++
	g.Advance(now) // it may have expired
}

// Drop removes a lease.
func (g *Ledger) Drop(now time.Time, id string) {
	g.Advance(now)
	g.drop(id)
}

// PutSession adds or replaces a session.
func (g *Ledger) PutSession(now time.Time, x Session) {
	g.Advance(now)
	if x.Until.After(now) {
		g.putSession(x)
		g.revision++
	}
}

// PutCooldown starts or extends a cooldown.
func (g *Ledger) PutCooldown(now time.Time, x Cooldown) {
	g.Advance(now)
	if x.Until.After(now) {
		g.startCooldown(x)
	}
}

// Find returns the record of a lease, running or expired. An expired one has no
// Session, TTL, GrantedAt, Key and Fingerprint.
func (g *Ledger) Find(now time.Time, id string) (Record, bool) {
	g.Advance(now)
	return g.find(id)
}
