package fault

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/external"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
)

const (
	// revival bounds how long a process may take to serve again. One whose
	// instance is replaced meanwhile never will.
	revival     = 30 * time.Second
	revivalPoll = 100 * time.Millisecond
)

func newProxy(l *Lab, name, variant string) (Fault, error) {
	if l.Fleet.IsExternal(name) {
		modes := map[string]external.Mode{
			plan.ProxyDie: external.Refuse, plan.ProxyHang: external.Hang, plan.ProxyJunk: external.Junk,
			plan.ProxyPage: external.Page, plan.ProxyElsewhere: external.Elsewhere, plan.ProxyForbid: external.Forbid,
		}
		mode, known := modes[variant]
		if !known {
			return nil, fmt.Errorf("proxies of others cannot be made %q", variant)
		}
		return &others{lab: l, name: name, mode: mode}, nil
	}
	if variant != plan.ProxyDie && variant != plan.ProxyHang {
		return nil, fmt.Errorf("proxies of ours cannot be made %q", variant)
	}
	return &ours{lab: l, name: name, dies: variant == plan.ProxyDie}, nil
}

func (l *Lab) proxyWindow(name string, family history.Family, detail string) history.Fault {
	f := history.Fault{Family: family, Subject: l.Fleet.FullName(name), Detail: detail}
	if p := l.Fleet.Known(name); p != nil {
		f.UID = string(p.UID)
	}
	return f
}

// others is a proxy of somebody else that dies, hangs or lies.
type others struct {
	lab  *Lab
	name string
	mode external.Mode
}

func (o *others) Window() history.Fault {
	return o.lab.proxyWindow(o.name, history.ProxyTruth, string(o.mode))
}

func (o *others) Inject(context.Context) (Heal, error) {
	heal := func(context.Context) error { return o.lab.Fleet.Switch(o.name, external.Serve) }
	return heal, o.lab.Fleet.Switch(o.name, o.mode)
}

// ours is a proxy whose process we run. One that dies is started again by its
// node.
type ours struct {
	lab  *Lab
	name string
	dies bool
}

func (o *ours) Window() history.Fault {
	detail := "the process hangs"
	if o.dies {
		detail = "the process dies"
	}
	return o.lab.proxyWindow(o.name, history.ProxyTruth, detail)
}

func (o *ours) Inject(context.Context) (Heal, error) {
	p := o.lab.Fleet.Known(o.name)
	if !runs(p) {
		return nil, fmt.Errorf("proxy %s has no instance now", o.name)
	}
	pids, err := o.lab.processes(p)
	if err != nil {
		return nil, err
	}
	signal, state := syscall.SIGSTOP, history.Hanging
	if o.dies {
		signal, state = syscall.SIGKILL, history.Dead
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, signal); err != nil {
			return nil, fmt.Errorf("signal the process of proxy %s: %w", o.name, err)
		}
	}
	o.lab.Fleet.Tell(o.name, address(p), state)
	return func(ctx context.Context) error {
		if o.dies {
			o.lab.awaitServing(ctx, p)
			return nil
		}
		o.lab.Fleet.Tell(o.name, address(p), history.Alive)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may be gone with its instance
		}
		return nil
	}, nil
}

// podsDie writes down that all Pods are dead, and returns what waits until they
// serve again.
func (l *Lab) podsDie() Heal {
	var dead []*v1alpha1.Proxy
	for _, name := range l.Fleet.Pods() {
		if p := l.Fleet.Known(name); runs(p) {
			l.Fleet.Tell(name, address(p), history.Dead)
			dead = append(dead, p)
		}
	}
	return func(ctx context.Context) error {
		var all sync.WaitGroup
		for _, p := range dead {
			all.Go(func() { l.awaitServing(ctx, p) })
		}
		all.Wait()
		return nil
	}
}

// awaitServing waits until the instance accepts connections again, and writes
// that down; or until there is another in its place.
func (l *Lab) awaitServing(ctx context.Context, p *v1alpha1.Proxy) {
	ctx, cancel := context.WithTimeout(ctx, revival)
	defer cancel()
	dialer := net.Dialer{Timeout: time.Second}
	for ctx.Err() == nil {
		now := l.Fleet.Recorder().Now()
		conn, err := dialer.DialContext(ctx, "tcp", address(p))
		if err == nil {
			_ = conn.Close()
			l.Fleet.TellAt(now, p.Name, address(p), history.Alive)
			return
		}
		if n := l.Fleet.Known(p.Name); n == nil || n.Status.InstanceID != p.Status.InstanceID {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(revivalPoll):
		}
	}
}

// runs reports whether the Proxy has an instance with an address.
func runs(p *v1alpha1.Proxy) bool { return p != nil && p.Status.IP != "" && p.Status.ProviderID != "" }

// address of the instance, as host:port.
func address(p *v1alpha1.Proxy) string {
	return net.JoinHostPort(p.Status.IP, strconv.Itoa(int(p.Status.Port)))
}
