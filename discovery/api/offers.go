package api

import (
	"maps"
	"slices"
	"sync"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// offers keeps what the store knows of the fleet in step with the fleet.
type offers struct {
	fleet Fleet
	store lease.Store

	mu     sync.Mutex
	synced bool
	list   []*fleet.Proxy // that the store knows of
	alive  string         // the shards whose verdicts were believed then
	told   map[string]*lease.Offer
}

func newOffers(f Fleet, store lease.Store) *offers {
	return &offers{fleet: f, store: store, told: map[string]*lease.Offer{}}
}

// sync returns the fleet as of now, after the store was told of it. One call at
// a time, so that no earlier picture is told after a later one.
func (o *offers) sync() (fleet.Snapshot, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	snap, err := o.fleet.Snapshot()
	if err != nil {
		return snap, err
	}
	alive := snap.Freshness.Alive()
	if o.synced && alive == o.alive && sameList(o.list, snap.Proxies) {
		return snap, nil
	}
	if change := o.change(snap, alive != o.alive); !o.synced || len(change.Changed)+len(change.Gone) > 0 {
		o.store.Offer(change)
	}
	o.synced, o.list, o.alive = true, snap.Proxies, alive
	return snap, nil
}

// sameList reports whether two lists are one: lists of the fleet never change.
func sameList(a, b []*fleet.Proxy) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// change finds what differs from what the store was told. Proxies never change
// either, so that only those need a look that were not there before, unless
// all verdicts have to be judged anew.
func (o *offers) change(snap fleet.Snapshot, judgeAll bool) lease.Offers {
	var out lease.Offers
	old := o.list
	for _, p := range snap.Proxies {
		if len(old) > 0 && old[0] == p && !judgeAll {
			old = old[1:] // as nearly all are
			continue
		}
		for len(old) > 0 && old[0].Candidate.Proxy < p.Candidate.Proxy {
			o.gone(&out, old[0])
			old = old[1:]
		}
		known := len(old) > 0 && old[0].Candidate.Proxy == p.Candidate.Proxy
		if known && old[0].ProxyUID != p.ProxyUID {
			o.gone(&out, old[0])
		}
		if !known || old[0] != p || judgeAll {
			o.changed(&out, p, snap.Freshness)
		}
		if known {
			old = old[1:]
		}
	}
	for _, p := range old {
		o.gone(&out, p)
	}
	return out
}

func (o *offers) gone(out *lease.Offers, p *fleet.Proxy) {
	delete(o.told, p.ProxyUID)
	out.Gone = append(out.Gone, p.ProxyUID)
}

func (o *offers) changed(out *lease.Offers, p *fleet.Proxy, f fleet.Freshness) {
	leasable, _ := fleet.Leasable(p, f)
	old := o.told[p.ProxyUID]
	if old != nil && old.Leasable == leasable && old.Candidate == p.Candidate && maps.Equal(old.Attributes, p.Attributes) {
		return
	}
	offer := &lease.Offer{Candidate: p.Candidate, Attributes: p.Attributes, Leasable: leasable}
	o.told[p.ProxyUID] = offer
	out.Changed = append(out.Changed, offer)
}

// sharing lists the proxies whose credentials are in the same Secret as p's.
func sharing(snap fleet.Snapshot, p *fleet.Proxy) []string {
	var out []string
	for _, o := range snap.Proxies {
		if o.Namespace == p.Namespace && o.CredentialsSecret == p.CredentialsSecret {
			out = append(out, o.Candidate.Proxy)
		}
	}
	return slices.Clip(out)
}
