package reconcile

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// seen takes in an observation, begun at, that the proxy's instance is at p. sure
// says that it is so now: lists may show what was.
func (e *proxy) observePresent(p *place, vm provider.Instance, at time.Time, sure bool) {
	if at.Before(p.since) {
		return
	}
	if p.vm != nil && p.vm.ID != vm.ID {
		p.remove = nil // it was about another one
	}
	if p.insert != nil && !p.insert.accepted() && !e.busy {
		p.insert = nil // it did arrive
	}
	p.lateUntil = time.Time{}
	p.vm, p.since, p.stale = &vm, at, false
	p.absences, p.read, p.checks = 0, false, 0
	e.confirmedAbsent, e.lagRuledOut = false, e.lagRuledOut || sure
	if p.insert == nil && vm.State == adapter.StateRunning && e.usable(&vm) {
		e.failure, e.attempts = nil, 0
	}
}

// missing takes in an observation, begun at, that nothing of the proxy is at p.
// The second one in a row ends the place, if at least one of them was a read of
// that place: lists may lag behind.
func (e *proxy) observeAbsent(p *place, at time.Time, read bool) {
	if !at.After(p.since) || !at.After(p.lateUntil) || e.insertInFlight(p) {
		return
	}
	if p.absences > 0 && at.Sub(p.absentAt) < confirmGap {
		return
	}
	p.absences++
	p.read = p.read || read
	p.absentAt, p.checks = at, 0
	p.checkAt = at.Add(confirmGap)
	if p.absences < 2 || !p.read {
		return
	}
	delete(e.places, p.Ref)
	e.confirmedAbsent = e.lagRuledOut
}

// insertInFlight reports whether an insert may still make an instance at p: one that
// is under way and has not made its instance yet, or one whose outcome a repeat
// is going to tell.
func (e *proxy) insertInFlight(p *place) bool {
	switch {
	case p.insert == nil:
		return false
	case p.insert.accepted():
		return p.vm == nil || p.vm.ID != p.insert.op.TargetID
	}
	return !e.deleted
}

// observeList takes in a list that began at.
func (a *account) observeList(l *provider.Listing, at time.Time) {
	a.snapshot.update(l, at)
	found := map[provider.Ref]bool{}
	for _, vm := range l.Instances {
		e := a.proxies[vm.UID]
		if e == nil {
			continue
		}
		found[vm.Ref] = true
		e.observePresent(e.at(vm.Ref), vm, at, a.pastListLag(at))
	}
	for _, e := range a.proxies {
		for _, p := range e.sortedPlaces() {
			// A call under way knows better.
			if l.Covers(p.Zone) && !found[p.Ref] && !e.busy {
				e.observeAbsent(p, at, false)
			}
		}
		if len(e.places) == 0 && at.After(e.asked) && (e.lagRuledOut || a.pastListLag(at)) && a.snapshot.gap() == nil {
			e.confirmedAbsent = true
		}
	}
}

// settled reports whether a list that began at shows everything that was made
// before this reconciler began.
func (a *account) pastListLag(at time.Time) bool { return at.Sub(a.began) > maxListLag }

// at returns the proxy's place at ref, a new one if there was none.
func (e *proxy) at(ref provider.Ref) *place {
	p := e.places[ref]
	if p == nil {
		p = &place{Ref: ref}
		e.places[ref] = p
	}
	return p
}
