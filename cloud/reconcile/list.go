package reconcile

import (
	"cmp"
	"maps"
	"slices"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

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
