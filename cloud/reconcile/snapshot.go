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
