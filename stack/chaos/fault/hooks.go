package fault

import (
	"context"
	"fmt"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/relay"
)

const (
	// slowAnswer is within the hooks' timeout of 10 s, tooSlowAnswer beyond it.
	slowAnswer    = 1500 * time.Millisecond
	tooSlowAnswer = 11 * time.Second
)

// hooks has their answers come late, cut or not at all.
type hooks struct {
	lab     *Lab
	variant string
	mode    relay.Mode
}

func newHooks(l *Lab, variant string) (Fault, error) {
	modes := map[string]relay.Mode{
		plan.HooksSlow: {Delay: slowAnswer}, plan.HooksTooSlow: {Delay: tooSlowAnswer},
		plan.HooksCut: {Cut: true}, plan.HooksFail: {Fail: true},
	}
	mode, known := modes[variant]
	if !known {
		return nil, fmt.Errorf("hooks cannot be made %q", variant)
	}
	return &hooks{lab: l, variant: variant, mode: mode}, nil
}

func (h *hooks) Window() history.Fault {
	return history.Fault{Family: history.SlowHooks, Subject: plan.Webhooks, Detail: h.variant}
}

func (h *hooks) Inject(context.Context) (Heal, error) {
	h.lab.Relay.Set(h.mode)
	return func(context.Context) error {
		h.lab.Relay.Set(relay.Mode{})
		return nil
	}, nil
}
