package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// observePresent records an observation, begun at, of the Proxy's instance at p.
// current is false when it may be older than that, as in a list.
func (px *proxy) observePresent(p *place, vm provider.Instance, at time.Time, current bool) {
	if at.Before(p.since) {
		return
	}
	if p.vm != nil && p.vm.ID != vm.ID {
		p.remove = nil // of another instance
	}
	if p.insert != nil && !p.insert.accepted() && !px.busy {
		p.insert = nil // it took effect
	}
	p.lateUntil = time.Time{}
	p.vm, p.since, p.stale = &vm, at, false
	p.absences, p.absentByRead, p.checks = 0, false, 0
	px.confirmedAbsent, px.lagRuledOut = false, px.lagRuledOut || current
	if px.failure != nil && px.failure.conflict {
		px.resetBackoff()
	}
	if p.insert == nil && vm.State == adapter.StateRunning && px.usable(&vm) {
		px.failure, px.attempts, p.unread = nil, nil, nil
	}
}

// resetBackoff makes the next mutation due at once.
func (px *proxy) resetBackoff() { px.failure, px.attempts, px.notBefore = nil, nil, time.Time{} }

// observeAbsent records an observation, begun at, that no instance of the Proxy is
// at p. The second one in a row removes the place, if at least one of them was a
// read of that place: lists may lag behind.
func (px *proxy) observeAbsent(p *place, at time.Time, read bool) {
	if !at.After(p.since) || !at.After(p.lateUntil) || px.insertInFlight(p) {
		return
	}
	if p.absences > 0 && at.Sub(p.absentAt) < confirmGap {
		return
	}
	p.absences++
	p.absentByRead = p.absentByRead || read
	p.absentAt, p.checks = at, 0
	p.checkAt = at.Add(confirmGap)
	if p.absences >= 2 && p.absentByRead {
		if p.remove != nil || p.vm != nil && px.mustDelete(p) {
			px.resetBackoff() // what delayed the delete does not delay the next insert
		}
		delete(px.places, p.Ref)
		px.confirmedAbsent = px.lagRuledOut
	}
}

// observeList records a list that began at.
func (a *account) observeList(l *provider.Listing, at time.Time) {
	a.snapshot.update(l, at)
	found := map[provider.Ref]bool{}
	for _, vm := range l.Instances {
		if px := a.proxies[vm.UID]; px != nil {
			found[vm.Ref] = true
			px.observePresent(px.at(vm.Ref), vm, at, a.pastListLag(at))
		}
	}
	for _, px := range a.proxies {
		for _, p := range px.sortedPlaces() {
			// The response to a call in flight is newer.
			if l.Covers(p.Zone) && !found[p.Ref] && !px.busy {
				px.observeAbsent(p, at, false)
			}
		}
		if len(px.places) == 0 && at.After(px.requestedAt) && (px.lagRuledOut || a.pastListLag(at)) && a.snapshot.gap() == nil {
			px.confirmedAbsent = true
		}
	}
}

// pastListLag reports whether a list that began at contains every instance that
// was made before this reconciler started.
func (a *account) pastListLag(at time.Time) bool { return at.Sub(a.startedAt) > maxListLag }

// snapshot is what lists returned about an account since the reconciler started.
// Instances that appeared later are its own.
type snapshot struct {
	listedAt    time.Time                          // when the last successful list began; zero before the first
	vms         map[provider.Ref]provider.Instance // as last listed, including those in zones that are unreachable now
	unreachable []string                           // unreachable zones of the last list

	unlistedZones map[string]bool // they were unreachable in every list, so that they may contain anything
	// incomplete: every list so far was partial without naming what is missing, so
	// that instances may exist outside of the answered zones.
	incomplete bool
	answered   map[string]bool
}

func newSnapshot() snapshot {
	return snapshot{
		vms: map[provider.Ref]provider.Instance{}, incomplete: true,
		unlistedZones: map[string]bool{}, answered: map[string]bool{},
	}
}

// update records a list that began at.
func (s *snapshot) update(l *provider.Listing, at time.Time) {
	s.listedAt = at
	s.unreachable = slices.Clone(l.Unreachable)
	maps.DeleteFunc(s.vms, func(ref provider.Ref, _ provider.Instance) bool { return l.Covers(ref.Zone) })
	for _, vm := range l.Instances {
		s.vms[vm.Ref] = vm
	}
	for zone := range l.Answered {
		if l.Covers(zone) {
			s.answered[zone] = true
		}
	}
	if s.incomplete && !l.Partial {
		s.incomplete = false
		for _, zone := range l.Unreachable {
			if !s.answered[zone] {
				s.unlistedZones[zone] = true
			}
		}
	}
	maps.DeleteFunc(s.unlistedZones, func(zone string, _ bool) bool { return l.Covers(zone) })
}

// listed reports whether a list succeeded.
func (s *snapshot) listed() bool { return !s.listedAt.IsZero() }

// gap returns nil when every zone was listed once, so that an instance that was
// never listed does not exist. Otherwise it names what was not listed.
func (s *snapshot) gap() error {
	switch {
	case s.incomplete:
		return fmt.Errorf("%w: the list of its instances has gaps that it does not name", adapter.ErrNotReady)
	case len(s.unlistedZones) > 0:
		zones := strings.Join(slices.Sorted(maps.Keys(s.unlistedZones)), ", ")
		return fmt.Errorf("%w: zone %s has been unreachable since this adapter started, and an instance may be there", adapter.ErrNotReady, zones)
	}
	return nil
}
