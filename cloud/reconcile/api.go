package reconcile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
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
	if edited && px.failure != nil && (px.failure.latched || px.failure.class == adapter.FailureRefused) {
		px.resetBackoff()
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
		px.resetBackoff()
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

// answer returns the observed instance, or an error while it is unknown.
func (a *account) answer(px *proxy, now time.Time) (adapter.Instance, error) {
	if len(px.places) == 0 {
		if err := a.snapshot.gap(); err != nil {
			return adapter.Instance{}, err
		}
	}
	return px.answer(now), nil
}

// answer is the response to PUT and DELETE.
func (px *proxy) answer(now time.Time) adapter.Instance {
	out := adapter.Instance{State: adapter.StateAbsent, Action: px.action(), Failure: px.shownFailure().answer(now)}
	p := px.survivor()
	switch {
	case p == nil && px.deleted && (len(px.places) > 0 || !px.confirmedAbsent):
		out.State = adapter.StateStopping // not confirmed since the request
		return out
	case p == nil && len(px.places) > 0:
		out.State = adapter.StateProvisioning
		return out
	case p == nil:
		return out
	}
	out.State, out.IP = p.vm.State, p.vm.IP
	if p.remove.accepted() || px.deleted && out.State == adapter.StateRunning {
		out.State = adapter.StateStopping
	}
	out.ProviderID, out.InstanceID = px.cloud.ProviderID(p.Ref), p.vm.ID
	out.SpecHash, out.Port = p.vm.SpecHash, p.vm.Port
	if !p.vm.CreatedAt.IsZero() {
		created := p.vm.CreatedAt.UTC()
		out.CreatedAt = &created
	}
	return out
}

// action is the mutation that is in flight, or that comes next.
func (px *proxy) action() adapter.Action {
	for _, p := range px.sortedPlaces() {
		switch {
		case px.deleted, p.vm != nil && px.mustDelete(p):
			return adapter.ActionDeleting
		case p.insert != nil:
			return adapter.ActionInserting
		}
	}
	if len(px.places) == 0 && px.failure == nil && !px.deleted {
		return adapter.ActionInserting
	}
	return adapter.ActionNone
}

// appendTo adds the account to a response to GET.
func (a *account) appendTo(list *adapter.List) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.opts.Clock.Now()
	for _, named := range a.providers {
		list.Providers = append(list.Providers, a.providerStatus(named))
	}
	requested := map[provider.Ref]bool{}
	for _, px := range a.proxies {
		for ref := range px.places {
			requested[ref] = true
		}
		list.Instances = append(list.Instances, adapter.ListedInstance{
			Name: px.name, Provider: px.provider, UID: px.uid, Instance: px.answer(now),
		})
	}
	for _, ref := range slices.SortedFunc(maps.Keys(a.snapshot.vms), compareRefs) {
		if !requested[ref] {
			list.Instances = append(list.Instances, a.unrequested(a.snapshot.vms[ref]))
		}
	}
}

func (a *account) providerStatus(named provider.Named) adapter.Provider {
	out := adapter.Provider{Name: named.Name, Type: named.Type, UnreachableZones: slices.Clone(a.snapshot.unreachable)}
	if a.snapshot.listed() {
		at := a.snapshot.listedAt.UTC()
		out.ListedAt = &at
	}
	if a.listErr != nil {
		out.Message = a.listErr.Error()
	}
	return out
}

// unrequested is an instance that no Proxy has requested since the start.
func (a *account) unrequested(vm provider.Instance) adapter.ListedInstance {
	return adapter.ListedInstance{Name: vm.Name, UID: vm.UID, Instance: adapter.Instance{
		State: vm.State, Action: adapter.ActionNone, ProviderID: a.cloud().ProviderID(vm.Ref),
		InstanceID: vm.ID, IP: vm.IP, Port: vm.Port, SpecHash: vm.SpecHash, CreatedAt: &vm.CreatedAt,
	}}
}

func compareRefs(a, b provider.Ref) int {
	return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Name, b.Name))
}
