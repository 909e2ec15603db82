// Package fault injects the faults of a campaign and heals them.
package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/stores"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/relay"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
)

// Heal undoes a fault. It returns when the fault is over.
type Heal func(ctx context.Context) error

// Fault is one thing to break.
type Fault struct {
	Window history.Fault // the record for the history, without From and To
	Inject Inject
}

// Inject breaks something. After an error nothing is broken.
type Inject func(ctx context.Context) (Heal, error)

// Programs is the part of a stack that faults act on.
type Programs interface {
	// Kill sends SIGKILL to a program, Revive starts it again, AwaitReady waits until it
	// is ready.
	Kill(name string) error
	Revive(name string) error
	AwaitReady(ctx context.Context, name string) error
	Signal(name string, sig os.Signal) error
	PID(name string) (int, error)
	// Driver is the name of the program that calls the hooks.
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
	// Disk of the lease journal. Without one, the file size of its process is limited.
	Disk *stores.Disk
	// Socket is the path of the cloud adapter's socket.
	Socket string
	// ComputeURL is the root of the Compute Engine stand-in.
	ComputeURL string
	// Kube deletes Pods without the system's knowledge.
	Kube kubernetes.Interface
	// PodRoot and VMRoot have a folder for each Pod and VM.
	PodRoot, VMRoot string
}

// subjects of the faults that have only one.
var subjects = map[history.Family]string{
	history.SlowHooks: plan.Webhooks, history.AdapterSocket: plan.Cloud, history.Compute: "gcestandin",
	history.TargetDown: "target", history.RedisAway: "redis", history.DiskFull: plan.DiscoveryFile,
}

// New returns the fault of a step. Steps of the kind Act have none.
func (l *Lab) New(s plan.Step) (Fault, error) {
	f := Fault{Window: history.Fault{Family: s.Kind, Subject: cmp.Or(s.Subject, subjects[s.Kind]), Detail: s.Variant}}
	switch s.Kind {
	case history.Kill:
		f.Inject = l.kill(s.Subject)
	case history.Freeze:
		f.Inject = l.freeze(s.Subject)
	case history.SlowHooks:
		f.Inject = l.hooks(s.Variant)
	case history.AdapterSocket:
		f.Inject = l.socket
	case history.Compute:
		f.Inject = l.compute(s.Variant, l.zone(s.Pick))
		if zoneModes[s.Variant] != "" {
			f.Window.Detail += " " + l.zone(s.Pick)
		}
	case history.TargetDown:
		f.Inject = l.target
	case history.RedisAway:
		f.Inject = l.redis(s.Variant)
	case history.DiskFull:
		f.Inject = l.disk
	case history.ProxyTruth, history.Terminated:
		f.Window.Subject = l.Fleet.FullName(s.Subject)
		if p := l.Fleet.Known(s.Subject); p != nil {
			f.Window.UID = string(p.UID)
		}
		f.Inject = l.instance(s.Subject, s.Variant)
		if s.Kind == history.ProxyTruth {
			f.Inject = l.proxy(s.Subject, s.Variant)
		}
	}
	if f.Inject == nil {
		return Fault{}, fmt.Errorf("no fault %q of kind %q", s.Variant, s.Kind)
	}
	return f, nil
}

// done is the Heal of a fault that the system heals by itself.
func done(context.Context) error { return nil }

// heal is a Heal that needs no context.
func heal(f func() error) Heal { return func(context.Context) error { return f() } }

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
func (l *Lab) kill(name string) Inject {
	return func(context.Context) (Heal, error) {
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
	}
}

// freeze stops a process with SIGSTOP and continues it.
func (l *Lab) freeze(name string) Inject {
	return stopped(func(sig os.Signal) error { return l.Programs.Signal(l.program(name), sig) })
}

// stopped sends SIGSTOP, and later SIGCONT, to a process that may be killed meanwhile.
func stopped(signal func(os.Signal) error) Inject {
	return func(context.Context) (Heal, error) {
		return heal(func() error {
			if err := signal(syscall.SIGCONT); !errors.Is(err, os.ErrProcessDone) {
				return err
			}
			return nil
		}), signal(syscall.SIGSTOP)
	}
}

var hookModes = map[string]relay.Mode{
	plan.HooksSlow:    {Delay: 1500 * time.Millisecond}, // within the hooks' timeout of 10 s
	plan.HooksTooSlow: {Delay: 11 * time.Second},        // beyond it
	plan.HooksCut:     {Cut: true},
	plan.HooksFail:    {Fail: true},
}

// hooks delays, cuts or drops the responses of the hooks.
func (l *Lab) hooks(variant string) Inject {
	mode, known := hookModes[variant]
	if !known {
		return nil
	}
	return func(context.Context) (Heal, error) {
		l.Relay.Set(mode)
		return heal(func() error { l.Relay.Set(relay.Mode{}); return nil }), nil
	}
}

// socket renames the adapter's socket and puts it back.
func (l *Lab) socket(context.Context) (Heal, error) {
	away := l.Socket + ".away"
	if err := os.Rename(l.Socket, away); err != nil {
		return nil, fmt.Errorf("rename the adapter's socket: %w", err)
	}
	return heal(func() error {
		// An adapter that started meanwhile has created another.
		if err := os.Link(away, l.Socket); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("put the adapter's socket back: %w", err)
		}
		return os.Remove(away)
	}), nil
}

// target closes the probe target.
func (l *Lab) target(context.Context) (Heal, error) {
	return heal(l.Programs.OpenTarget), l.Programs.CloseTarget()
}

// redis kills or freezes Redis.
func (l *Lab) redis(variant string) Inject {
	switch variant {
	case plan.RedisKill:
		return func(context.Context) (Heal, error) { return l.Redis.Start, l.Redis.Kill() }
	case plan.RedisFreeze:
		return stopped(l.Redis.Signal)
	}
	return nil
}

// disk fills the disk of the lease journal: writes fail with ENOSPC, or EFBIG without Disk.
func (l *Lab) disk(context.Context) (Heal, error) {
	if l.Disk != nil {
		return heal(l.Disk.Free), l.Disk.Fill()
	}
	pid, err := l.Programs.PID(plan.DiscoveryFile)
	if err != nil {
		return nil, err
	}
	return heal(func() error {
		now, err := l.Programs.PID(plan.DiscoveryFile)
		if err != nil || now != pid {
			return err // a new process has no limit
		}
		return stores.LimitFiles(pid, 0)
	}), stores.LimitFiles(pid, 1)
}
