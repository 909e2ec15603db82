package ledger

import (
	"cmp"
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Report starts a cooldown if the result calls for one. It takes reports on expired
// leases, for the cooldown time or until Limits.Expired others have expired: a
// report is late just when the proxy is in trouble. Errors are lease.ErrUnknown,
// also for released leases, and *lease.LimitError when the limit of targets is
// reached.
func (g *Ledger) Report(now time.Time, id string, rep lease.Report) error {
	g.Advance(now)
	r, known := g.find(id)
	if !known {
		return lease.ErrUnknown
	}
	target, length := rep.Cooldown(r.Target, g.cooldown)
	if length <= 0 {
		return nil
	}
	x := Cooldown{ProxyUID: r.Instance.ProxyUID, Target: target, Until: now.Add(length)}
	if g.cooldowns[x.ProxyUID][target] == nil && g.targetLimitReached(x) {
		return g.TargetLimitError(x.ProxyUID)
	}
	g.startCooldown(x)
	return nil
}

// targetLimitReached reports whether there is no room for a cooldown. Those for all
// targets have no limit: there is at most one for each Proxy.
func (g *Ledger) targetLimitReached(x Cooldown) bool {
	if x.Target == "" {
		return false
	}
	n, _ := g.targetCooldowns.size(x.ProxyUID)
	return n >= g.limits.TargetsPerProxy || g.deadlines[ofTargetCooldown].Len() >= g.limits.Targets
}

// TargetLimitError is the error for a cooldown that exceeds a limit of targets.
func (g *Ledger) TargetLimitError(proxyUID string) *lease.LimitError {
	if n, first := g.targetCooldowns.size(proxyUID); n >= g.limits.TargetsPerProxy {
		return &lease.LimitError{Limit: lease.LimitTargetsPerProxy, Most: g.limits.TargetsPerProxy, FreeAt: first}
	}
	full := &lease.LimitError{Limit: lease.LimitTargets, Most: g.limits.Targets}
	if first := g.deadlines[ofTargetCooldown].first(); first != nil {
		full.FreeAt = first.at
	}
	return full
}

// startCooldown starts a cooldown, or extends the one there is.
func (g *Ledger) startCooldown(x Cooldown) {
	c := g.cooldowns[x.ProxyUID][x.Target]
	if c != nil && !x.Until.After(c.at) {
		return
	}
	if c != nil {
		g.deadlines.move(&c.deadline, x.Until)
	} else {
		g.addCooldown(x)
	}
	g.journal.PutCooldown(x)
	g.revision++
}

func (g *Ledger) addCooldown(x Cooldown) {
	if g.cooldowns[x.ProxyUID] == nil {
		g.cooldowns[x.ProxyUID] = map[string]*cooldown{}
		if p := g.proxies[x.ProxyUID]; p != nil {
			p.cooldowns = g.cooldowns[x.ProxyUID]
		}
	}
	c := &cooldown{proxyUID: x.ProxyUID, target: x.Target}
	g.cooldowns[x.ProxyUID][x.Target] = c
	var group *timeHeap
	if x.Target != "" {
		group = g.targetCooldowns.group(x.ProxyUID)
	}
	g.deadlines.add(&c.deadline, c, x.Until, group)
}

func (g *Ledger) removeCooldown(c *cooldown) {
	g.deadlines.remove(&c.deadline)
	g.targetCooldowns.tidy(c.proxyUID)
	targets, p := g.cooldowns[c.proxyUID], g.proxies[c.proxyUID]
	delete(targets, c.target)
	if len(targets) == 0 {
		delete(g.cooldowns, c.proxyUID)
		if p != nil {
			p.cooldowns = nil
		}
	}
	if p != nil {
		p.updateKeys()
		g.stats.update(p, g.now)
	}
	g.journal.DeleteCooldown(Cooldown{ProxyUID: c.proxyUID, Target: c.target, Until: c.at})
}

// Cooldowns lists those of a Proxy by target: the one for all targets comes first.
func (g *Ledger) Cooldowns(now time.Time, proxyUID string) []lease.Cooldown {
	g.Advance(now)
	out := make([]lease.Cooldown, 0, len(g.cooldowns[proxyUID]))
	for target, c := range g.cooldowns[proxyUID] {
		out = append(out, lease.Cooldown{Target: target, Until: c.at})
	}
	slices.SortFunc(out, func(a, b lease.Cooldown) int { return cmp.Compare(a.Target, b.Target) })
	return out
}

// EndCooldown ends a cooldown early, and reports whether there was one.
func (g *Ledger) EndCooldown(now time.Time, proxyUID, target string) bool {
	g.Advance(now)
	c := g.cooldowns[proxyUID][target]
	if c == nil {
		return false
	}
	g.removeCooldown(c)
	g.revision++
	return true
}

// EndCooldowns ends a Proxy's cooldown for one target, or all when the target is "",
// and returns how many it ended.
func (g *Ledger) EndCooldowns(now time.Time, proxyUID, target string) (ended int) {
	for _, c := range g.Cooldowns(now, proxyUID) {
		if (target == "" || c.Target == target) && g.EndCooldown(now, proxyUID, c.Target) {
			ended++
		}
	}
	return ended
}
