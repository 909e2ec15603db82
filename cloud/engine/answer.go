package engine

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
)

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
