package reconcile

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
)

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
	out := adapter.Instance{State: adapter.StateAbsent, Action: px.action(), Failure: px.failure.answer(now)}
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
