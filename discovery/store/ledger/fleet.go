package ledger

import (
	"maps"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Offer applies a change of the fleet. The first call holds the whole fleet.
func (g *Ledger) Offer(offers lease.Offers) {
	g.fleetKnown = true
	g.stats.clear()
	for _, o := range offers.Changed {
		g.setOffer(o)
	}
	for _, uid := range offers.Gone {
		if p := g.proxies[uid]; p != nil {
			g.removeFromViews(p)
			g.detach(p)
			delete(g.proxies, uid)
		}
	}
	if len(offers.Changed)+len(offers.Gone) > 0 {
		g.revision++
	}
}

// setOffer adds a proxy or replaces its offer.
func (g *Ledger) setOffer(o *lease.Offer) {
	p := g.proxies[o.ProxyUID]
	if p == nil {
		p = &proxy{}
		g.proxies[o.ProxyUID] = p
	}
	moves := p.Offer == nil || p.Scheme != o.Scheme || !maps.Equal(p.Attributes, o.Attributes)
	if moves {
		g.removeFromViews(p)
	}
	if p.Offer != nil && p.Instance != o.Instance {
		g.detach(p)
	}
	p.Offer, p.Instance, p.Proxy = o, o.Instance, o.Proxy
	p.class, p.room = lease.LatencyClass(o.LatencyMillis), 0
	if o.Leasable {
		p.room = o.MaxLeases
	}
	g.attach(p)
	p.cooldowns = g.cooldowns[p.ProxyUID]
	if moves {
		g.insertIntoViews(p)
	} else {
		p.updateKeys()
	}
}

// offeredAs returns the proxy that offers this instance, nil when none does.
func (g *Ledger) offeredAs(i lease.Instance) *proxy {
	p := g.proxies[i.ProxyUID]
	if p == nil || p.Instance != i {
		return nil
	}
	return p
}

// leaseSet is the running leases of one instance. They are part of its proxy while
// that offers the instance. Instances that are deleted, replaced or not offered yet
// have theirs in Ledger.detached.
type leaseSet struct{ leases []*activeLease }

func (x *leaseSet) add(l *activeLease) {
	l.index = len(x.leases)
	x.leases = append(x.leases, l)
}

func (x *leaseSet) remove(l *activeLease) {
	last := len(x.leases) - 1
	moved := x.leases[last]
	x.leases[l.index], moved.index = moved, l.index
	x.leases[last], x.leases = nil, x.leases[:last]
}

// setOf returns the set that a running lease belongs to.
func (g *Ledger) setOf(l *activeLease) *leaseSet {
	if l.proxy != nil {
		return &l.proxy.leaseSet
	}
	x := g.detached[l.Instance]
	if x == nil {
		x = &leaseSet{}
		g.detached[l.Instance] = x
	}
	return x
}

// detach takes the leases from a proxy whose instance is no longer offered.
func (g *Ledger) detach(p *proxy) {
	if len(p.leases) > 0 {
		g.detached[p.Instance] = &leaseSet{p.leases}
	}
	for _, l := range p.leases {
		l.proxy = nil
	}
	p.leases = nil
}

// attach gives a proxy the leases that run on its instance.
func (g *Ledger) attach(p *proxy) {
	x := g.detached[p.Instance]
	if x == nil {
		return
	}
	delete(g.detached, p.Instance)
	p.leases = x.leases
	for _, l := range p.leases {
		l.attachTo(p)
	}
}

// attachTo links a lease to its proxy, and shares the proxy's strings: those that
// were read from a file or from Redis take memory of their own.
func (l *activeLease) attachTo(p *proxy) {
	l.proxy, l.Instance = p, p.Instance
	if l.Proxy == p.Proxy {
		l.Proxy = p.Proxy
	}
}
