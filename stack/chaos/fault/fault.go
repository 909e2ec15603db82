// Package fault breaks things, and makes them whole again: one file per family.
package fault

import (
	"context"
	"fmt"
	"os"

	"k8s.io/client-go/kubernetes"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/relay"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/stores"
)

// Heal makes whole what was broken. It returns when that is so.
type Heal func(ctx context.Context) error

// Fault is one thing that goes wrong.
type Fault interface {
	// Window is what the history says about it. From and To are others' to fill
	// in.
	Window() history.Fault
	// Inject breaks it. An error means that nothing is broken.
	Inject(ctx context.Context) (Heal, error)
}

// Programs is the part of a stack that processes are killed by.
type Programs interface {
	// Kill ends a program by SIGKILL, Revive starts it again, AwaitReady waits
	// until it is ready.
	Kill(name string) error
	Revive(name string) error
	AwaitReady(ctx context.Context, name string) error
	Signal(name string, sig os.Signal) error
	PID(name string) (int, error)
	// Driver is the name of the one that calls the hooks.
	Driver() string
	// CloseTarget and OpenTarget close and open the probe target.
	CloseTarget() error
	OpenTarget() error
}

// Lab is what can be broken. All fields but Disk are required.
type Lab struct {
	Programs Programs
	Fleet    *fleet.Fleet
	Relay    *relay.Relay
	Redis    *stores.Redis
	// Disk of the lease journal; without one the files of its process are limited.
	Disk *stores.Disk
	// Socket is the path of the cloud adapter's.
	Socket string
	// ComputeURL is the root of the Compute Engine stand-in.
	ComputeURL string
	// Kube deletes Pods behind everybody's back.
	Kube kubernetes.Interface
	// PodRoot and VMRoot have a folder for each Pod and VM.
	PodRoot, VMRoot string
}

// New returns the fault of a step that is no act.
func (l *Lab) New(s plan.Step) (Fault, error) {
	switch s.Kind {
	case plan.Kill:
		return &kill{lab: l, name: s.Subject}, nil
	case plan.Freeze:
		return &freeze{lab: l, name: s.Subject}, nil
	case plan.Hooks:
		return newHooks(l, s.Variant)
	case plan.Socket:
		return &socket{path: l.Socket}, nil
	case plan.Compute:
		return newCompute(l, s.Variant, s.Pick)
	case plan.Target:
		return &target{lab: l}, nil
	case plan.Redis:
		return &redis{lab: l, variant: s.Variant}, nil
	case plan.Disk:
		return &disk{lab: l}, nil
	case plan.Proxy:
		return newProxy(l, s.Subject, s.Variant)
	case plan.Instance:
		return &instance{lab: l, name: s.Subject, variant: s.Variant}, nil
	}
	return nil, fmt.Errorf("no fault does %q", s.Kind)
}

// nothing is left to heal.
func nothing(context.Context) error { return nil }
