package fault

import (
	"context"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// target closes what proxies are probed against.
type target struct{ lab *Lab }

func (t *target) Window() history.Fault {
	return history.Fault{Family: history.TargetDown, Subject: "target"}
}

func (t *target) Inject(context.Context) (Heal, error) {
	if err := t.lab.Programs.CloseTarget(); err != nil {
		return nil, err
	}
	return func(context.Context) error { return t.lab.Programs.OpenTarget() }, nil
}
