package ledger

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Report starts a cooldown if the result calls for one. It takes reports on
// leases that have expired, for as long as the window or until Limits.Expired have
// expired after it: a late report tends to come just when the proxy is in trouble. A
// released lease is lease.ErrUnknown. Where there is no room for another target it is a
// *lease.LimitError.
func (g *Ledger) Report(now time.Time, id string, rep lease.Report) error {
	g.Advance(now)
	r, known := g.find(id)
	if !known {
		return lease.ErrUnknown
	}
	target, length := rep.Cooldown(r.Target, g.window)
	if length <= 0 {
		return nil
	}
	x := Cooldown{ProxyUID: r.Instance.ProxyUID, Target: target, Until: now.Add(length)}
	if g.cooling[x.ProxyUID][target] == nil {
		if full := g.targetsFull(x); full != nil {
			return full
		}
	}
	g.cool(x)
	return nil
}

// targetsFull says why there is no room for a cooldown, nil when there is. Those
// for all targets have no limit: there is one for each Proxy at the most.
func (g *Ledger) targetsFull(x Cooldown) error {
	if x.Target == "" {
		return nil
	}
	if n, _ := g.resting.size(x.ProxyUID); n < g.limits.TargetsPerProxy && len(g.due[ofTargetCooldown]) < g.limits.Targets {
		return nil
	}
	return g.TargetsFull(x.ProxyUID)
}

// TargetsFull says that a Proxy can cool for no other target, and until when.
func (g *Ledger) TargetsFull(proxyUID string) *lease.LimitError {
	if n, first := g.resting.size(proxyUID); n >= g.limits.TargetsPerProxy {
		return &lease.LimitError{Limit: lease.LimitTargetsPerProxy, Most: g.limits.TargetsPerProxy, FreeAt: first}
	}
	full := &lease.LimitError{Limit: lease.LimitTargets, Most: g.limits.Targets}
	if all := g.due[ofTargetCooldown]; len(all) > 0 {
		full.FreeAt = all[0].at
	}
	return full
}

// cool starts a cooldown, or prolongs the one there is.
func (g *Ledger) cool(x Cooldown) {
	c := g.cooling[x.ProxyUID][x.Target]
	if c != nil && !x.Until.After(c.at) {
		return
	}
	if c != nil {
		g.due.move(&c.deadline, x.Until)
	} else {
		g.addCooldown(x)
	}
	g.journal.PutCooldown(x)
	g.revision++
}

func (g *Ledger) addCooldown(x Cooldown) {
	if g.cooling[x.ProxyUID] == nil {
		g.cooling[x.ProxyUID] = map[string]*cooldown{}
		if e := g.proxies[x.ProxyUID]; e != nil {
			e.cooling = g.cooling[x.ProxyUID]
		}
	}
	c := &cooldown{proxyUID: x.ProxyUID, target: x.Target}
	g.cooling[x.ProxyUID][x.Target] = c
	if x.Target == "" {
		g.due.add(&c.deadline, c, x.Until, nil)
		return
	}
	g.due.add(&c.deadline, c, x.Until, g.resting.of(x.ProxyUID))
}

// warm forgets a cooldown.
func (g *Ledger) warm(c *cooldown) {
	g.due.remove(&c.deadline)
	g.resting.tidy(c.proxyUID)
	delete(g.cooling[c.proxyUID], c.target)
	e := g.proxies[c.proxyUID]
	if len(g.cooling[c.proxyUID]) == 0 {
		delete(g.cooling, c.proxyUID)
		if e != nil {
			e.cooling = nil
		}
	}
	if e != nil {
		e.touch()
		g.refusals.changed(g, e)
	}
	g.journal.ForgetCooldown(Cooldown{ProxyUID: c.proxyUID, Target: c.target, Until: c.at})
}
