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

// put notes what should be and answers with what is.
func (a *account) put(named provider.Named, name string, req adapter.PutRequest) (adapter.Instance, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.opts.Clock.Now()
	if err := a.ready(); err != nil {
		return adapter.Instance{}, err
	}
	if _, deleted := a.tombstones[req.UID]; deleted {
		return adapter.Instance{}, fmt.Errorf("uid %s: %w", req.UID, ErrDeleted)
	}
	e, err := a.entry(named, name, req.UID, now)
	if err != nil {
		return adapter.Instance{}, err
	}
	if !sameWant(e.req, req) || e.req.Replace != req.Replace {
		a.poke()
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
	e, err := a.entry(named, name, uid, now)
	if err != nil {
		return adapter.Instance{}, err
	}
	a.tombstones[uid] = now
	e.renewed = now
	if !e.gone {
		a.poke()
		e.gone, e.asked, e.absent = true, now, false
		e.failure, e.notBefore, e.attempts = nil, time.Time{}, 0
	}
	// Where the caller last knew it to be is looked at once, also when no list
	// shows it.
	if hint != nil && e.hint != *hint {
		e.hint = *hint
		if p := e.at(*hint); p.vm == nil {
			p.unsure = true
		}
		a.poke()
	}
	return a.answer(e, now)
}

// ready returns why nothing can be said about the account yet.
func (a *account) ready() error {
	if a.world.listed() {
		return nil
	}
	if a.listErr != nil {
		return fmt.Errorf("%w: its instances could not be listed: %w", ErrNotReady, a.listErr)
	}
	return fmt.Errorf("%w: its instances are being listed for the first time", ErrNotReady)
}

// entry finds or makes the entry of a UID, with the places where lists have
// shown its instances.
func (a *account) entry(named provider.Named, name, uid string, now time.Time) (*entry, error) {
	e := a.entries[uid]
	if e == nil {
		e = &entry{
			uid: uid, name: name, provider: named.Name, cloud: named.Cloud,
			asked: now, renewed: now, places: map[provider.Ref]*place{},
		}
		for _, vm := range a.world.of(uid) {
			p := e.at(vm.Ref)
			p.vm, p.since = &vm, a.world.listedAt
			e.made = later(e.made, vm.CreatedAt)
		}
		a.entries[uid] = e
		a.poke()
	}
	if e.provider != named.Name {
		return nil, fmt.Errorf("uid %s: %w: it belongs to provider %s", uid, ErrConflict, e.provider)
	}
	return e, nil
}

// answer says what is, or that it is not known.
func (a *account) answer(e *entry, now time.Time) (adapter.Instance, error) {
	if len(e.places) == 0 {
		if err := a.world.gap(); err != nil {
			return adapter.Instance{}, err
		}
	}
	return e.answer(now), nil
}

// answer is what callers are told about an entry.
func (e *entry) answer(now time.Time) adapter.Instance {
	out := adapter.Instance{State: adapter.StateAbsent, Action: e.action(), Failure: e.failure.answer(now)}
	if e.gone && len(e.places) == 0 && !e.absent {
		out.State = adapter.StateStopping // nobody looked since it was asked for
	}
	p := e.keeper()
	if p == nil {
		if len(e.places) > 0 {
			out.State = e.stateUnseen()
		}
		return out
	}
	out.State, out.IP = p.vm.State, p.vm.IP
	if p.remove.accepted() || e.gone && out.State == adapter.StateRunning {
		out.State = adapter.StateStopping
	}
	out.ProviderID, out.InstanceID = e.cloud.ProviderID(p.Ref), p.vm.ID
	out.SpecHash, out.Port = p.vm.SpecHash, p.vm.Port
	if !p.vm.CreatedAt.IsZero() {
		created := p.vm.CreatedAt.UTC()
		out.CreatedAt = &created
	}
	return out
}

// stateUnseen is the state of an entry that has places and no sighting.
func (e *entry) stateUnseen() adapter.State {
	if e.gone {
		return adapter.StateStopping
	}
	return adapter.StateProvisioning
}

// action is what is under way or comes next without further ado.
func (e *entry) action() adapter.Action {
	for _, p := range e.sortedPlaces() {
		switch {
		case p.vm != nil && e.mustGo(p):
			return adapter.ActionDeleting
		case p.insert != nil && !e.gone:
			return adapter.ActionInserting
		case e.gone:
			return adapter.ActionDeleting
		}
	}
	if len(e.places) == 0 && e.failure == nil && !e.gone {
		return adapter.ActionInserting
	}
	return adapter.ActionNone
}

// forget makes the engine leave a UID alone whose Proxy is known not to exist.
func (a *account) forget(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tombstones[uid] = a.opts.Clock.Now()
	if e := a.entries[uid]; e != nil && !e.busy {
		delete(a.entries, uid)
	}
}

// describe adds the account to an answer to GET.
func (a *account) describe(list *adapter.List) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.opts.Clock.Now()
	for _, named := range a.providers {
		list.Providers = append(list.Providers, a.describeProvider(named))
	}
	asked := map[provider.Ref]bool{}
	for _, e := range a.entries {
		for ref := range e.places {
			asked[ref] = true
		}
		list.Instances = append(list.Instances, adapter.ListedInstance{
			Name: e.name, Provider: e.provider, UID: e.uid, Instance: e.answer(now),
		})
	}
	for _, ref := range slices.SortedFunc(maps.Keys(a.world.vms), compareRefs) {
		if !asked[ref] {
			list.Instances = append(list.Instances, a.unasked(a.world.vms[ref]))
		}
	}
}

func (a *account) describeProvider(named provider.Named) adapter.Provider {
	out := adapter.Provider{Name: named.Name, Type: named.Type, UnreachableZones: slices.Clone(a.world.unreachable)}
	if a.world.listed() {
		at := a.world.listedAt.UTC()
		out.ListedAt = &at
	}
	if a.listErr != nil {
		out.Message = a.listErr.Error()
	}
	return out
}

func (a *account) unasked(vm provider.Instance) adapter.ListedInstance {
	created := vm.CreatedAt
	return adapter.ListedInstance{Name: vm.Name, UID: vm.UID, Instance: adapter.Instance{
		State: vm.State, Action: adapter.ActionNone, ProviderID: a.cloud().ProviderID(vm.Ref),
		InstanceID: vm.ID, IP: vm.IP, Port: vm.Port, SpecHash: vm.SpecHash, CreatedAt: &created,
	}}
}

func compareRefs(a, b provider.Ref) int {
	return strings.Compare(a.Zone+"/"+a.Name, b.Zone+"/"+b.Name)
}
