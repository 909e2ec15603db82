package reconcile

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
)

// answer says what is, or that it is not known.
func (a *account) answer(e *proxy, now time.Time) (adapter.Instance, error) {
	if len(e.places) == 0 {
		if err := a.snapshot.gap(); err != nil {
			return adapter.Instance{}, err
		}
	}
	return e.answer(now), nil
}

// answer is what callers are told about an proxy.
func (e *proxy) answer(now time.Time) adapter.Instance {
	out := adapter.Instance{State: adapter.StateAbsent, Action: e.action(), Failure: e.failure.answer(now)}
	if e.deleted && len(e.places) == 0 && !e.confirmedAbsent {
		out.State = adapter.StateStopping // nobody looked since it was asked for
	}
	p := e.survivor()
	if p == nil {
		if len(e.places) > 0 {
			out.State = e.stateUnseen()
		}
		return out
	}
	out.State, out.IP = p.vm.State, p.vm.IP
	if p.remove.accepted() || e.deleted && out.State == adapter.StateRunning {
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

// stateUnseen is the state of an proxy that has places and no sighting.
func (e *proxy) stateUnseen() adapter.State {
	if e.deleted {
		return adapter.StateStopping
	}
	return adapter.StateProvisioning
}

// action is what is under way or comes next without further ado.
func (e *proxy) action() adapter.Action {
	for _, p := range e.sortedPlaces() {
		switch {
		case p.vm != nil && e.mustDelete(p):
			return adapter.ActionDeleting
		case p.insert != nil && !e.deleted:
			return adapter.ActionInserting
		case e.deleted:
			return adapter.ActionDeleting
		}
	}
	if len(e.places) == 0 && e.failure == nil && !e.deleted {
		return adapter.ActionInserting
	}
	return adapter.ActionNone
}
