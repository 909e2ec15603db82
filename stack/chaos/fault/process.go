package fault

import (
	"context"
	"errors"
	"os"
	"syscall"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
)

// program is what the stack calls a process.
func (l *Lab) program(name string) string {
	switch name {
	case plan.APIServer:
		return controlplane.APIServer
	case plan.Metacontroller:
		return l.Programs.Driver()
	}
	return name
}

// kill ends a process with SIGKILL and starts it again.
type kill struct {
	lab  *Lab
	name string
}

func (k *kill) Window() history.Fault {
	return history.Fault{Family: history.Kill, Subject: k.name}
}

func (k *kill) Inject(context.Context) (Heal, error) {
	if err := k.lab.Programs.Kill(k.lab.program(k.name)); err != nil {
		return nil, err
	}
	revive := nothing
	if k.name == plan.Node { // whose processes go with it
		revive = k.lab.podsDie()
	}
	return func(ctx context.Context) error {
		if err := k.lab.Programs.Revive(k.lab.program(k.name)); err != nil && !errors.Is(err, stack.ErrRuns) {
			return err
		}
		if err := k.lab.Programs.AwaitReady(ctx, k.lab.program(k.name)); err != nil {
			return err
		}
		return revive(ctx)
	}, nil
}

// freeze stops a process and lets it go on.
type freeze struct {
	lab  *Lab
	name string
}

func (f *freeze) Window() history.Fault {
	return history.Fault{Family: history.Freeze, Subject: f.name}
}

func (f *freeze) Inject(context.Context) (Heal, error) {
	if err := f.lab.Programs.Signal(f.lab.program(f.name), syscall.SIGSTOP); err != nil {
		return nil, err
	}
	return func(context.Context) error {
		return goOn(f.lab.Programs.Signal(f.lab.program(f.name), syscall.SIGCONT))
	}, nil
}

// goOn forgives processes that were killed while they were frozen.
func goOn(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
