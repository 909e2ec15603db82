// Package fault injects the faults of a campaign and heals them.
package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/relay"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/stores"
)

// Heal undoes a fault. It returns when the fault is over.
type Heal func(ctx context.Context) error

// Fault is one thing to break.
type Fault struct {
	// Window is the record for the history, without From and To.
	Window history.Fault
	// Inject breaks it. After an error nothing is broken.
	Inject func(ctx context.Context) (Heal, error)
}

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

// New returns the fault of a step. Steps of the kind Act have none.
func (l *Lab) New(s plan.Step) (Fault, error) {
	switch s.Kind {
	case plan.Kill:
		return l.kill(s.Subject), nil
	case plan.Freeze:
		return l.freeze(s.Subject), nil
	case plan.Hooks:
		return l.hooks(s.Variant)
	case plan.Socket:
		return l.socket(), nil
	case plan.Compute:
		return l.compute(s.Variant, s.Pick)
	case plan.Target:
		return l.target(), nil
	case plan.Redis:
		return l.redis(s.Variant)
	case plan.Disk:
		return l.disk(), nil
	case plan.Proxy:
		return l.proxy(s.Subject, s.Variant)
	case plan.Instance:
		return l.instance(s.Subject, s.Variant), nil
	}
	return Fault{}, fmt.Errorf("no fault of kind %q", s.Kind)
}

// done is the Heal of a fault that the system heals by itself.
func done(context.Context) error { return nil }

// heal is a Heal that needs no context.
func heal(f func() error) Heal { return func(context.Context) error { return f() } }

const (
	// slowAnswer is within the hooks' timeout of 10 s, tooSlowAnswer beyond it.
	slowAnswer    = 1500 * time.Millisecond
	tooSlowAnswer = 11 * time.Second
)

var hookModes = map[string]relay.Mode{
	plan.HooksSlow: {Delay: slowAnswer}, plan.HooksTooSlow: {Delay: tooSlowAnswer},
	plan.HooksCut: {Cut: true}, plan.HooksFail: {Fail: true},
}

// hooks delays, cuts or drops the responses of the hooks.
func (l *Lab) hooks(variant string) (Fault, error) {
	mode, known := hookModes[variant]
	if !known {
		return Fault{}, fmt.Errorf("no fault %q of the hooks", variant)
	}
	return Fault{history.Fault{Family: history.SlowHooks, Subject: plan.Webhooks, Detail: variant}, func(context.Context) (Heal, error) {
		l.Relay.Set(mode)
		return heal(func() error { l.Relay.Set(relay.Mode{}); return nil }), nil
	}}, nil
}

// socket renames the adapter's socket and puts it back.
func (l *Lab) socket() Fault {
	return Fault{history.Fault{Family: history.AdapterSocket, Subject: plan.Cloud}, func(context.Context) (Heal, error) {
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
	}}
}

// target closes the probe target.
func (l *Lab) target() Fault {
	return Fault{history.Fault{Family: history.TargetDown, Subject: "target"}, func(context.Context) (Heal, error) {
		return heal(l.Programs.OpenTarget), l.Programs.CloseTarget()
	}}
}

// redis kills or freezes Redis.
func (l *Lab) redis(variant string) (Fault, error) {
	window := history.Fault{Family: history.RedisAway, Subject: "redis", Detail: variant}
	switch variant {
	case plan.RedisKill:
		return Fault{window, func(context.Context) (Heal, error) { return l.Redis.Start, l.Redis.Kill() }}, nil
	case plan.RedisFreeze:
		return Fault{window, func(context.Context) (Heal, error) {
			return heal(func() error { return ignoreDone(l.Redis.Signal(syscall.SIGCONT)) }), l.Redis.Signal(syscall.SIGSTOP)
		}}, nil
	}
	return Fault{}, fmt.Errorf("no fault %q of Redis", variant)
}

// disk fills the disk of the lease journal.
func (l *Lab) disk() Fault {
	window := history.Fault{Family: history.DiskFull, Subject: plan.DiscoveryFile, Detail: "ENOSPC"}
	if l.Disk != nil {
		return Fault{window, func(context.Context) (Heal, error) { return heal(l.Disk.Free), l.Disk.Fill() }}
	}
	window.Detail = "EFBIG"
	return Fault{window, func(context.Context) (Heal, error) {
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
	}}
}
