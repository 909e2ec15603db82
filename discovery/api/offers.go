package api

import (
	"maps"
	"sync"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// offers updates the store with changes of the fleet.
type offers struct {
	fleet Fleet
	store lease.Store

	mu     sync.Mutex
	synced bool
	list   []*fleet.Proxy // of the last update
	alive  string         // the shards whose verdicts were fresh then
	sent   map[string]*sentOffer
	update uint64
}

// sentOffer is the last offer of a Proxy, by its UID.
type sentOffer struct {
	proxy *fleet.Proxy
	offer *lease.Offer
	seen  uint64 // the last update that had the Proxy
}

func newOffers(f Fleet, store lease.Store) *offers {
	return &offers{fleet: f, store: store, sent: map[string]*sentOffer{}}
}

// sync updates the store and returns the snapshot that it now has. Calls are
// serialised, so that no older snapshot overwrites a newer one.
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

// sameList reports whether two lists are the same slice: lists of the fleet are
// immutable.
func sameList(a, b []*fleet.Proxy) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// change compares the snapshot with the last update. Proxies are immutable, too, so
// only new pointers are compared, unless the freshness of all verdicts has changed.
func (o *offers) change(snap fleet.Snapshot, freshnessChanged bool) lease.Offers {
	var out lease.Offers
	o.update++
	for _, p := range snap.Proxies {
		s := o.sent[p.ProxyUID]
		if s == nil {
			s = &sentOffer{}
			o.sent[p.ProxyUID] = s
		}
		s.seen = o.update
		if s.proxy == p && !freshnessChanged {
			continue
		}
		s.proxy = p
		leasable, _ := fleet.Leasable(p, snap.Freshness)
		if old := s.offer; old == nil || old.Leasable != leasable || old.Candidate != p.Candidate || !maps.Equal(old.Attributes, p.Attributes) {
			s.offer = &lease.Offer{Candidate: p.Candidate, Attributes: p.Attributes, Leasable: leasable}
			out.Changed = append(out.Changed, s.offer)
		}
	}
	if len(o.sent) > len(snap.Proxies) {
		for uid, s := range o.sent {
			if s.seen != o.update {
				delete(o.sent, uid)
				out.Gone = append(out.Gone, uid)
			}
		}
	}
	return out
}

// sharingSecret lists the proxies with the same credentials Secret as p.
func sharingSecret(snap fleet.Snapshot, p *fleet.Proxy) []string {
	var out []string
	for _, o := range snap.Proxies {
		if o.Namespace == p.Namespace && o.CredentialsSecret == p.CredentialsSecret {
			out = append(out, o.Candidate.Proxy)
		}
	}
	return out
}
