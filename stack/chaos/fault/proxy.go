package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/external"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/supervise"
)

const (
	// revivalTimeout is for a process to serve again. One whose instance is replaced
	// meanwhile never does.
	revivalTimeout = 30 * time.Second
	revivalPoll    = 100 * time.Millisecond
)

var externalModes = map[string]external.Mode{
	plan.ProxyDie: external.Refuse, plan.ProxyHang: external.Hang, plan.ProxyJunk: external.Junk,
	plan.ProxyPage: external.Page, plan.ProxyElsewhere: external.Elsewhere, plan.ProxyForbid: external.Forbid,
}

// proxy breaks a proxy: an External one dies, hangs or lies; the process of another
// one dies or hangs. The node restarts a process that died.
func (l *Lab) proxy(name, variant string) Inject {
	mode, known := externalModes[variant]
	switch {
	case l.Fleet.IsExternal(name) && known:
		return l.switched(name, mode)
	case l.Fleet.IsExternal(name):
		return nil
	case variant == plan.ProxyDie:
		return l.ownProxy(name, syscall.SIGKILL, history.Dead)
	case variant == plan.ProxyHang:
		return l.ownProxy(name, syscall.SIGSTOP, history.Hanging)
	}
	return nil
}

func (l *Lab) switched(name string, mode external.Mode) Inject {
	return func(context.Context) (Heal, error) {
		return heal(func() error { return l.Fleet.Switch(name, external.Serve) }), l.Fleet.Switch(name, mode)
	}
}

// instanceOf returns a Proxy with an instance.
func (l *Lab) instanceOf(name string) (*v1alpha1.Proxy, error) {
	p := l.Fleet.Known(name)
	if !runs(p) {
		return nil, fmt.Errorf("proxy %s has no instance now", name)
	}
	return p, nil
}

// ownProxy sends a signal to the processes of an instance.
func (l *Lab) ownProxy(name string, signal syscall.Signal, state history.State) Inject {
	return func(context.Context) (Heal, error) {
		p, err := l.instanceOf(name)
		if err != nil {
			return nil, err
		}
		pids, err := l.processes(p)
		if err != nil {
			return nil, err
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, signal); err != nil {
				return nil, fmt.Errorf("signal the process of proxy %s: %w", name, err)
			}
		}
		l.record(p, state)
		return func(ctx context.Context) error {
			if state == history.Dead {
				l.awaitServing(ctx, p)
				return nil
			}
			l.record(p, history.Alive)
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGCONT) // it may be gone with its instance
			}
			return nil
		}, nil
	}
}

// record records the state of an instance from now on.
func (l *Lab) record(p *v1alpha1.Proxy, state history.State) {
	l.Fleet.RecordState(0, p.Name, address(p), state)
}

// instance ends an instance without the system's knowledge: a Pod is deleted, a VM
// preempted or removed.
func (l *Lab) instance(name, variant string) Inject {
	return func(ctx context.Context) (Heal, error) {
		p, err := l.instanceOf(name)
		if err != nil {
			return nil, err
		}
		l.record(p, history.Dead) // it serves for a moment longer, but no longer reliably
		if err := l.endInstance(ctx, p, variant); err != nil {
			l.record(p, history.Alive)
			if errors.Is(err, errUncertain) {
				return done, nil
			}
			return nil, err
		}
		return done, nil
	}
}

// errUncertain: a request to end an instance got no response, and may take effect.
var errUncertain = errors.New("the instance may end")

func (l *Lab) endInstance(ctx context.Context, p *v1alpha1.Proxy, variant string) error {
	if variant == plan.InstanceDelete {
		namespace, pod, ok := strings.Cut(p.Status.ProviderID, "/")
		if !ok {
			return fmt.Errorf("proxy %s: providerID %q is not one of a Pod", p.Name, p.Status.ProviderID)
		}
		ctx, cancel := context.WithTimeout(ctx, controlTimeout)
		defer cancel()
		err := l.Kube.CoreV1().Pods(namespace).Delete(ctx, pod, metav1.DeleteOptions{})
		if _, uncertain := fleet.Outcome(err); uncertain {
			return fmt.Errorf("%w: %w", errUncertain, err)
		}
		return err
	}
	zone, vm, ok := vmOf(p)
	if !ok {
		return fmt.Errorf("proxy %s: providerID %q is not one of a VM", p.Name, p.Status.ProviderID)
	}
	return l.control(ctx, http.MethodPost, "/control/vms/"+zone+"/"+vm+"/"+variant, nil)
}

// vmOf splits zones/ZONE/instances/NAME.
func vmOf(p *v1alpha1.Proxy) (zone, name string, ok bool) {
	parts := strings.Split(p.Status.ProviderID, "/")
	if len(parts) != 4 || parts[0] != "zones" || parts[2] != "instances" {
		return "", "", false
	}
	return parts[1], parts[3], true
}

// processes returns the pids of the instance's processes: those whose working
// directory is in its folder.
func (l *Lab) processes(p *v1alpha1.Proxy) ([]int, error) {
	folder := filepath.Join(l.PodRoot, "pod-"+p.Status.InstanceID)
	if _, name, ok := vmOf(p); ok {
		folder = filepath.Join(l.VMRoot, name+"-"+p.Status.InstanceID)
	}
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, p := range all {
		if at, err := p.Cwd(); err == nil && (at == folder || strings.HasPrefix(at, folder+"/")) {
			pids = append(pids, p.PID)
		}
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("no process works in %s", folder)
	}
	return pids, nil
}

// podsDie records that all Pods are dead. The Heal waits until they serve again.
func (l *Lab) podsDie() Heal {
	var dead []*v1alpha1.Proxy
	for _, name := range l.Fleet.Pods() {
		if p := l.Fleet.Known(name); runs(p) {
			l.record(p, history.Dead)
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

// awaitServing waits until the instance accepts connections again, and records that;
// or until the Proxy has another instance.
func (l *Lab) awaitServing(ctx context.Context, p *v1alpha1.Proxy) {
	ctx, cancel := context.WithTimeout(ctx, revivalTimeout)
	defer cancel()
	moved := func() error {
		if n := l.Fleet.Known(p.Name); n == nil || n.Status.InstanceID != p.Status.InstanceID {
			return errors.New("the Proxy has another instance")
		}
		return nil
	}
	dialer := net.Dialer{Timeout: time.Second}
	var now time.Duration
	if err := supervise.Until(ctx, revivalPoll, moved, func(ctx context.Context) error {
		now = l.Fleet.Recorder().Now()
		conn, err := dialer.DialContext(ctx, "tcp", address(p))
		if err != nil {
			return err
		}
		return conn.Close()
	}); err == nil {
		l.Fleet.RecordState(now, p.Name, address(p), history.Alive)
	}
}

// runs reports whether the Proxy has an instance with an address.
func runs(p *v1alpha1.Proxy) bool { return p != nil && p.Status.IP != "" && p.Status.ProviderID != "" }

// address of the instance, as host:port.
func address(p *v1alpha1.Proxy) string {
	return net.JoinHostPort(p.Status.IP, strconv.Itoa(int(p.Status.Port)))
}
