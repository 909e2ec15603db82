package reconcile

import (
	"fmt"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// put notes what should be and answers with what is.
func (a *account) put(named provider.Named, name string, req adapter.PutRequest) (adapter.Instance, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.opts.Clock.Now()
	if err := a.ready(); err != nil {
		return adapter.Instance{}, err
	}
	if _, deleted := a.tombstones[req.UID]; deleted {
		return adapter.Instance{}, fmt.Errorf("uid %s: %w", req.UID, adapter.ErrDeleted)
	}
	e, err := a.proxy(named, name, req.UID, now)
	if err != nil {
		return adapter.Instance{}, err
	}
	if !sameWant(e.req, req) || e.req.Replace != req.Replace {
		a.wake()
	}
	if !sameWant(e.req, req) && e.failure != nil && e.failure.latched {
		e.failure = nil
	}
	e.req, e.renewed = req, now
	return a.answer(e, now)
}

// delete notes that nothing should be and answers with what is.
func (a *account) delete(named provider.Named, name, uid string, hint *provider.Ref) (adapter.Instance, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.opts.Clock.Now()
	if err := a.ready(); err != nil {
		return adapter.Instance{}, err
	}
	e, err := a.proxy(named, name, uid, now)
	if err != nil {
		return adapter.Instance{}, err
	}
	a.tombstones[uid] = now
	e.renewed = now
	if !e.deleted {
		a.wake()
		e.deleted, e.asked, e.confirmedAbsent = true, now, false
		e.failure, e.notBefore, e.attempts = nil, time.Time{}, 0
	}
	// Where the caller last knew it to be is looked at once, also when no list
	// shows it.
	if hint != nil && e.hint != *hint {
		e.hint = *hint
		if p := e.at(*hint); p.vm == nil {
			p.stale = true
		}
		a.wake()
	}
	return a.answer(e, now)
}

// ready returns why nothing can be said about the account yet.
func (a *account) ready() error {
	if a.snapshot.listed() {
		return nil
	}
	if a.listErr != nil {
		return fmt.Errorf("%w: its instances could not be listed: %w", adapter.ErrNotReady, a.listErr)
	}
	return fmt.Errorf("%w: its instances are being listed for the first time", adapter.ErrNotReady)
}

// proxy finds or makes the proxy of a UID, with the places where lists have
// shown its instances.
func (a *account) proxy(named provider.Named, name, uid string, now time.Time) (*proxy, error) {
	e := a.proxies[uid]
	if e == nil {
		e = &proxy{
			uid: uid, name: name, provider: named.Name, cloud: named.Cloud,
			asked: now, renewed: now, places: map[provider.Ref]*place{},
		}
		for _, vm := range a.snapshot.of(uid) {
			p := e.at(vm.Ref)
			p.vm, p.since = &vm, a.snapshot.listedAt
			e.lagRuledOut = a.pastListLag(a.snapshot.listedAt)
			e.madeAt = later(e.madeAt, vm.CreatedAt)
		}
		a.proxies[uid] = e
		a.wake()
	}
	if e.provider != named.Name {
		return nil, fmt.Errorf("uid %s: %w: it belongs to provider %s", uid, adapter.ErrConflict, e.provider)
	}
	return e, nil
}

// forget makes the reconciler leave a UID alone whose Proxy is known not to exist.
func (a *account) forget(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tombstones[uid] = a.opts.Clock.Now()
	if e := a.proxies[uid]; e != nil && !e.busy {
		delete(a.proxies, uid)
	}
}
