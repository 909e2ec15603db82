package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// world is what lists have told about an account since this engine began.
// Before it began others may have made instances; since then only it has.
type world struct {
	// listedAt is when the last good list began; zero before the first.
	listedAt time.Time
	// vms are the last sightings, those in zones that do not answer included.
	vms map[provider.Ref]provider.Instance
	// unreachable zones did not answer the last list.
	unreachable []string

	// blind zones never answered, so that anything may be in them.
	blind map[string]bool
	// vague: no list was without a gap that it did not name, so that anything
	// may be outside of answered.
	vague    bool
	answered map[string]bool
}

func newWorld() world {
	return world{
		vms: map[provider.Ref]provider.Instance{}, vague: true,
		blind: map[string]bool{}, answered: map[string]bool{},
	}
}

// update takes in a list that began at.
func (w *world) update(l *provider.Listing, at time.Time) {
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
	if w.vague && !l.Partial {
		w.vague = false
		for _, zone := range l.Unreachable {
			if !w.answered[zone] {
				w.blind[zone] = true
			}
		}
	}
	maps.DeleteFunc(w.blind, func(zone string, _ bool) bool { return l.Covers(zone) })
}

// listed reports whether there was a good list.
func (w *world) listed() bool { return !w.listedAt.IsZero() }

// gap returns nil when every zone has been heard, so that what was never seen
// does not exist; otherwise what has not.
func (w *world) gap() error {
	switch {
	case w.vague:
		return fmt.Errorf("%w: the list of its instances has gaps that it does not name", adapter.ErrNotReady)
	case len(w.blind) > 0:
		zones := strings.Join(slices.Sorted(maps.Keys(w.blind)), ", ")
		return fmt.Errorf("%w: zone %s has not answered since this adapter began, and an instance may be there", adapter.ErrNotReady, zones)
	}
	return nil
}

// of returns the instances of one UID.
func (w *world) of(uid string) []provider.Instance {
	var out []provider.Instance
	for _, vm := range w.vms {
		if vm.UID == uid {
			out = append(out, vm)
		}
	}
	return out
}
