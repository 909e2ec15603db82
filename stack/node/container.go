package node

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
)

// shutdownGrace is the grace period of processes when the node stops. Their Pods stay, so it is
// short.
const shutdownGrace = 200 * time.Millisecond

// containerState is the state of a container's process, as in the container's status.
type containerState struct {
	Current  corev1.ContainerState // has exactly one of Waiting and Running set; neither at first
	Last     corev1.ContainerState // how the previous process ended
	ID       string                // that of the running process, or of the last one
	Restarts int32                 // counts the processes after the first
}

// container restarts the process of one Pod until stop is called.
type container struct {
	pod     types.NamespacedName
	uid     types.UID
	addr    netip.Addr
	dir     podDir
	config  string // for addr and dir
	launch  *Launcher
	clock   clock.Clock
	log     *slog.Logger
	changed func() // called after each change of state, without locks held

	stopping  chan struct{}
	stopOnce  sync.Once
	stopGrace time.Duration // set before stopping is closed

	mu    sync.Mutex
	state containerState
}

// snapshot returns the current state.
func (c *container) snapshot() containerState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *container) set(change func(*containerState)) {
	c.mu.Lock()
	change(&c.state)
	c.mu.Unlock()
	c.changed()
}

// stop sends SIGTERM to the process, and SIGKILL after grace, and frees all that the Pod has on
// this host. It does not wait. Only the first call counts.
func (c *container) stop(grace time.Duration) {
	c.stopOnce.Do(func() {
		c.stopGrace = grace
		close(c.stopping)
	})
}

// run keeps the process running until stop is called, or until ctx ends: then the node stops, and
// leaves folder and state to the next one.
func (c *container) run(ctx context.Context) {
	var delays backoff
	for {
		began := c.clock.Now()
		proc, err := c.start()
		if err == nil {
			c.started(proc)
			if !c.supervise(ctx, proc) {
				return
			}
		}
		delay := delays.next(c.clock.Since(began))
		c.ended(proc, err, delay)
		if !c.sleep(ctx, delay) {
			return
		}
		c.mu.Lock()
		if c.state.ID != "" {
			c.state.Restarts++
		}
		c.mu.Unlock()
	}
}

func (c *container) start() (*process.Process, error) {
	if err := c.dir.prepare(c.config, c.launch.Credential); err != nil {
		return nil, err
	}
	return c.launch.start(c.dir, c.config)
}

// supervise returns true when the process exited by itself, and false when it was stopped.
func (c *container) supervise(ctx context.Context, proc *process.Process) bool {
	grace := shutdownGrace
	select {
	case <-proc.Done():
		return true
	case <-c.stopping:
		grace = c.stopGrace
	case <-ctx.Done():
	}
	if err := proc.Stop(grace); err != nil {
		c.log.Error("process does not end", "pid", proc.PID(), "err", err)
	}
	return false
}

// sleep returns false when the container stops meanwhile.
func (c *container) sleep(ctx context.Context, d time.Duration) bool {
	timer := c.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-c.stopping:
	case <-ctx.Done():
	}
	return false
}

// Restart delays follow the kubelet's crash loop backoff, scaled down from ten seconds and five
// minutes for laptops.
const (
	firstRestartDelay = time.Second
	maxRestartDelay   = 30 * time.Second
	// steadyAfter is how long a process must have run for the backoff to start over. The kubelet
	// takes twice its maximum as well.
	steadyAfter = 2 * maxRestartDelay
)

// backoff computes the delay before each restart of one container.
type backoff struct{ last time.Duration }

// next returns the backoff after a process that ran for that long: it doubles up to the maximum.
func (b *backoff) next(ran time.Duration) time.Duration {
	if ran >= steadyAfter {
		b.last = 0
	}
	b.last = min(max(2*b.last, firstRestartDelay), maxRestartDelay)
	return b.last
}
