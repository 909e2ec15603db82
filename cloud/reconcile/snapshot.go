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

// snapshot is what lists have told about an account since this reconciler began.
// Before it began others may have made instances; since then only it has.
type snapshot struct {
	// listedAt is when the last good list began; zero before the first.
	listedAt time.Time
	// vms are the last sightings, those in zones that do not answer included.
	vms map[provider.Ref]provider.Instance
	// unreachable zones did not answer the last list.
	unreachable []string

	// unlistedZones zones never answered, so that anything may be in them.
	unlistedZones map[string]bool
	// incomplete: no list was without a gap that it did not name, so that anything
	// may be outside of answered.
	incomplete bool
	answered   map[string]bool
}

func newSnapshot() snapshot {
	return snapshot{
		vms: map[provider.Ref]provider.Instance{}, incomplete: true,
		unlistedZones: map[string]bool{}, answered: map[string]bool{},
	}
}

// update takes in a list that began at.
func (w *snapshot) update(l *provider.Listing, at time.Time) {
	w.listedAt = at
	w.unreachable = slices.Clone(l.Unreachable)
	maps.DeleteFunc(w.vms, func(ref provider.Ref, _ provider.Instance) bool { return l.Covers(ref.Zone) })
	for _, vm := range l.Instances {
		w.vms[vm.Ref] = vm
	}
	for zone := range l.Answered {
		if l.Covers(zone) {
			w.answered[zone] = true
		}
	}
	if w.incomplete && !l.Partial {
		w.incomplete = false
		for _, zone := range l.Unreachable {
			if !w.answered[zone] {
				w.unlistedZones[zone] = true
			}
		}
	}
	maps.DeleteFunc(w.unlistedZones, func(zone string, _ bool) bool { return l.Covers(zone) })
}

// listed reports whether there was a good list.
func (w *snapshot) listed() bool { return !w.listedAt.IsZero() }

// gap returns nil when every zone has been heard, so that what was never seen
// does not exist; otherwise what has not.
func (w *snapshot) gap() error {
	switch {
	case w.incomplete:
		return fmt.Errorf("%w: the list of its instances has gaps that it does not name", adapter.ErrNotReady)
	case len(w.unlistedZones) > 0:
		zones := strings.Join(slices.Sorted(maps.Keys(w.unlistedZones)), ", ")
		return fmt.Errorf("%w: zone %s has not answered since this adapter began, and an instance may be there", adapter.ErrNotReady, zones)
	}
	return nil
}

// of returns the instances of one UID.
func (w *snapshot) of(uid string) []provider.Instance {
	var out []provider.Instance
	for _, vm := range w.vms {
		if vm.UID == uid {
			out = append(out, vm)
		}
	}
	return out
}
