package reconcile

import (
	"maps"
	"slices"
	"strings"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// describe adds the account to an answer to GET.
func (a *account) describe(list *adapter.List) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.opts.Clock.Now()
	for _, named := range a.providers {
		list.Providers = append(list.Providers, a.describeProvider(named))
	}
	asked := map[provider.Ref]bool{}
	for _, e := range a.proxies {
		for ref := range e.places {
			asked[ref] = true
		}
		list.Instances = append(list.Instances, adapter.ListedInstance{
			Name: e.name, Provider: e.provider, UID: e.uid, Instance: e.answer(now),
		})
	}
	for _, ref := range slices.SortedFunc(maps.Keys(a.snapshot.vms), compareRefs) {
		if !asked[ref] {
			list.Instances = append(list.Instances, a.unasked(a.snapshot.vms[ref]))
		}
	}
}

func (a *account) describeProvider(named provider.Named) adapter.Provider {
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
