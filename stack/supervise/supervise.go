// Package supervise runs the programs of a stack. Each can be killed and restarted, at the same
// address and on the same data; an exit that no caller expects is reported.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
)

// ErrRuns: the program to start runs already.
var ErrRuns = errors.New("it still runs")

// Group is the programs that are stopped together. The zero value is not ready to use: see NewGroup.
type Group struct {
	quiet    chan struct{} // closed when exits are no longer failures
	watchers sync.WaitGroup
}

// NewGroup returns an empty group.
func NewGroup() *Group { return &Group{quiet: make(chan struct{})} }

// Quiet is closed by Close.
func (g *Group) Quiet() <-chan struct{} { return g.quiet }

// Close ends all watches, and waits for calls of Ended. The caller stops the programs.
func (g *Group) Close() {
	close(g.quiet)
	g.watchers.Wait()
}

// Part is one program.
type Part struct {
	Command process.Command // starts it
	Group   *Group          // that it belongs to
	Ended   func(error)     // called when the program has exited by itself while it was watched

	mu      sync.Mutex
	process *process.Process
	wanted  chan struct{} // closed when the exit of process is expected
}

// Start starts the program, or restarts it after its exit: the error is ErrRuns before.
func (p *Part) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process != nil && p.exitOf(p.process) == nil {
		return fmt.Errorf("start %s: %w", p.Command.Name, ErrRuns)
	}
	started, err := process.Start(p.Command)
	if err == nil {
		p.process, p.wanted = started, make(chan struct{})
	}
	return err
}

// Current is the process that was started last, nil when none was.
func (p *Part) Current() *process.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process
}

// Exited returns nil while the program runs. Its error contains how it ended, and the end of its log.
func (p *Part) Exited() error {
	return p.exitOf(p.Current())
}

// exitOf returns how that process of the part ended, nil while it runs.
func (p *Part) exitOf(started *process.Process) error {
	select {
	case <-started.Done():
	default:
		return nil
	}
	if err := started.Wait(); err != nil {
		return fmt.Errorf("%s ended: %w", p.Command.Name, err)
	}
	return fmt.Errorf("%s exited with status 0; its log ends with:\n%s", p.Command.Name, started.LogTail())
}

// Watch makes an exit of the running process known by a call of Ended, unless Kill or the end of
// the group is the cause.
func (p *Part) Watch() {
	p.mu.Lock()
	current, wanted := p.process, p.wanted
	p.mu.Unlock()
	p.Group.watchers.Go(func() {
		select {
		case <-p.Group.quiet:
			return
		case <-wanted:
			return
		case <-current.Done():
		}
		select {
		case <-wanted:
		case <-p.Group.quiet: // both at once: that is why it ended
		default:
			p.Ended(p.exitOf(current))
		}
	})
}

// Kill sends SIGKILL to the program and waits until it is gone. Its exit, also one a moment ago, is
// expected then. It is idempotent.
func (p *Part) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.wanted:
	default:
		close(p.wanted)
	}
	if err := p.process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.process.Done()
	return nil
}

// Until calls check at that interval until it returns nil. It returns the last error of check when
// ctx ends, or the one of failed, unless that is nil, as soon as failed returns one.
func Until(ctx context.Context, interval time.Duration, failed func() error, check func(context.Context) error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // after the timeout, err may be the context's
		}
		if failed != nil {
			if err := failed(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return last
		case <-tick.C:
		}
	}
}

// Sleep returns false when ctx ends before d is over.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
