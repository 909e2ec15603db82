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

// program returns the stack's name of a process.
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
func (l *Lab) kill(name string) Fault {
	return Fault{history.Fault{Family: history.Kill, Subject: name}, func(context.Context) (Heal, error) {
		program := l.program(name)
		if err := l.Programs.Kill(program); err != nil {
			return nil, err
		}
		revive := done
		if name == plan.Node { // its Pods' processes die with it
			revive = l.podsDie()
		}
		return func(ctx context.Context) error {
			if err := l.Programs.Revive(program); err != nil && !errors.Is(err, stack.ErrRuns) {
				return err
			}
			if err := l.Programs.AwaitReady(ctx, program); err != nil {
				return err
			}
			return revive(ctx)
		}, nil
	}}
}

// freeze stops a process with SIGSTOP and continues it.
func (l *Lab) freeze(name string) Fault {
	return Fault{history.Fault{Family: history.Freeze, Subject: name}, func(context.Context) (Heal, error) {
		program := l.program(name)
		if err := l.Programs.Signal(program, syscall.SIGSTOP); err != nil {
			return nil, err
		}
		return heal(func() error { return ignoreDone(l.Programs.Signal(program, syscall.SIGCONT)) }), nil
	}}
}

// ignoreDone drops the error for a process that was killed while it was frozen.
func ignoreDone(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
