package reconcile

import (
	"fmt"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// put stores the desired instance and returns the observed one.
func (a *account) put(named provider.Named, name string, req adapter.PutRequest) (adapter.Instance, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.opts.Clock.Now()
	if _, deleted := a.tombstones[req.UID]; deleted && a.ready() == nil {
		return adapter.Instance{}, fmt.Errorf("uid %s: %w", req.UID, adapter.ErrDeleted)
	}
	px, err := a.proxy(named, name, req.UID, now)
	if err != nil {
		return adapter.Instance{}, err
	}
	edited := !sameSpec(px.req, req)
	if edited || px.req.Replace != req.Replace {
		a.wake()
	}
	if edited && px.failure != nil && px.failure.latched {
		px.failure = nil
	}
	px.req, px.lastRequest = req, now
	return a.answer(px, now)
}

// delete stores that no instance is desired and returns the observed one.
func (a *account) delete(named provider.Named, name, uid string, hint *provider.Ref) (adapter.Instance, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.opts.Clock.Now()
	px, err := a.proxy(named, name, uid, now)
	if err != nil {
		return adapter.Instance{}, err
	}
	a.tombstones[uid], px.lastRequest = now, now
	if !px.deleted {
		a.wake()
		px.deleted, px.requestedAt, px.confirmedAbsent = true, now, false
		px.failure, px.notBefore, px.attempts = nil, time.Time{}, 0
	}
	// The last known location is read at once, even when no list contains it.
	if hint != nil && px.hint != *hint {
		px.hint = *hint
		if p := px.at(*hint); p.vm == nil {
			p.stale = true
		}
		a.wake()
	}
	return a.answer(px, now)
}

// ready returns why the account's instances are not known yet.
func (a *account) ready() error {
	if a.snapshot.listed() {
		return nil
	}
	if a.listErr != nil {
		return fmt.Errorf("%w: its instances could not be listed: %w", adapter.ErrNotReady, a.listErr)
	}
	return fmt.Errorf("%w: its instances are being listed for the first time", adapter.ErrNotReady)
}

// proxy finds or adds the Proxy of a UID, with the places of its listed instances. It
// fails before the first list.
func (a *account) proxy(named provider.Named, name, uid string, now time.Time) (*proxy, error) {
	if err := a.ready(); err != nil {
		return nil, err
	}
	px := a.proxies[uid]
	if px == nil {
		px = &proxy{
			uid: uid, name: name, provider: named.Name, cloud: named.Cloud,
			requestedAt: now, lastRequest: now, places: map[provider.Ref]*place{},
		}
		for _, vm := range a.snapshot.vms {
			if vm.UID != uid {
				continue
			}
			p := px.at(vm.Ref)
			p.vm, p.since = &vm, a.snapshot.listedAt
			px.lagRuledOut = a.pastListLag(a.snapshot.listedAt)
			px.madeAt = later(px.madeAt, vm.CreatedAt)
		}
		a.proxies[uid] = px
		a.wake()
	}
	if px.provider != named.Name {
		return nil, fmt.Errorf("uid %s: %w: it belongs to provider %s", uid, adapter.ErrConflict, px.provider)
	}
	return px, nil
}

// forget drops a UID whose Proxy does not exist, and refuses it from now on.
func (a *account) forget(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tombstones[uid] = a.opts.Clock.Now()
	if px := a.proxies[uid]; px != nil && !px.busy {
		delete(a.proxies, uid)
	}
}
