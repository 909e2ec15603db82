package engine

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// seen takes in an observation, begun at, that the entry's instance is at p. sure
// says that it is so now: lists may show what was.
func (e *entry) seen(p *place, vm provider.Instance, at time.Time, sure bool) {
	if at.Before(p.since) {
		return
	}
	if p.vm != nil && p.vm.ID != vm.ID {
		p.remove = nil // it was about another one
	}
	if p.insert != nil && !p.insert.accepted() && !e.busy {
		p.insert = nil // it did arrive
	}
	p.settled = time.Time{}
	p.vm, p.since, p.unsure = &vm, at, false
	p.absences, p.read, p.checks = 0, false, 0
	e.absent, e.sure = false, e.sure || sure
	if p.insert == nil && vm.State == adapter.StateRunning && e.fits(&vm) {
		e.failure, e.attempts = nil, 0
	}
}

// missing takes in an observation, begun at, that nothing of the entry is at p.
// The second one in a row ends the place, if at least one of them was a read of
// that place: lists may lag behind.
func (e *entry) missing(p *place, at time.Time, read bool) {
	if !at.After(p.since) || !at.After(p.settled) || e.mayLand(p) {
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
	e.absent = e.sure
}

// mayLand reports whether an insert may still make an instance at p: one that
// is under way and has not made its instance yet, or one whose outcome a repeat
// is going to tell.
func (e *entry) mayLand(p *place) bool {
	switch {
	case p.insert == nil:
		return false
	case p.insert.accepted():
		return p.vm == nil || p.vm.ID != p.insert.op.TargetID
	}
	return !e.gone
}

// listedBy takes in a list that began at.
func (a *account) listedBy(l *provider.Listing, at time.Time) {
	a.world.update(l, at)
	found := map[provider.Ref]bool{}
	for _, vm := range l.Instances {
		e := a.entries[vm.UID]
		if e == nil {
			continue
		}
		found[vm.Ref] = true
		e.seen(e.at(vm.Ref), vm, at, a.settled(at))
	}
	for _, e := range a.entries {
		for _, p := range e.sortedPlaces() {
			// A call under way knows better.
			if l.Covers(p.Zone) && !found[p.Ref] && !e.busy {
				e.missing(p, at, false)
			}
		}
		if len(e.places) == 0 && at.After(e.asked) && (e.sure || a.settled(at)) && a.world.gap() == nil {
			e.absent = true
		}
	}
}

// settled reports whether a list that began at shows everything that was made
// before this engine began.
func (a *account) settled(at time.Time) bool { return at.Sub(a.began) > lagPatience }

// at returns the entry's place at ref, a new one if there was none.
func (e *entry) at(ref provider.Ref) *place {
	p := e.places[ref]
	if p == nil {
		p = &place{Ref: ref}
		e.places[ref] = p
	}
	return p
}
