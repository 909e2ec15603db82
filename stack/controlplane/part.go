package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
)

// Names of the programs, for Kill, Signal, Revive and PID.
const (
	Etcd      = etcdBinary
	APIServer = apiServerBinary
)

// part is one of the two programs. It can be killed and restarted, at the same address and on the
// same data.
type part struct {
	command process.Command

	mu      sync.Mutex
	process *process.Process
	// wanted is closed when the exit of process is expected.
	wanted chan struct{}
}

// start starts the program, and watches for an unexpected exit.
func (p *part) start(cp *ControlPlane) error {
	started, err := process.Start(p.command)
	if err != nil {
		return err
	}
	wanted := make(chan struct{})
	p.mu.Lock()
	p.process, p.wanted = started, wanted
	p.mu.Unlock()
	cp.watchers.Go(func() { cp.watch(started, wanted) })
	return nil
}

// current is the process that was started last, nil when none was.
func (p *part) current() *process.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process
}

// kill ends the process with SIGKILL. It returns when it is gone.
func (p *part) kill() error {
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

func (cp *ControlPlane) part(name string) (*part, error) {
	switch name {
	case Etcd:
		return &cp.etcd, nil
	case APIServer:
		return &cp.apiServer, nil
	}
	return nil, fmt.Errorf("the control plane has no program %q: want %s or %s", name, Etcd, APIServer)
}

// Kill sends SIGKILL to one of the programs and waits until it is gone. The control plane does not
// count this exit as a failure; Revive restarts the program.
func (cp *ControlPlane) Kill(name string) error {
	p, err := cp.part(name)
	if err != nil {
		return err
	}
	return p.kill()
}

// Revive restarts a killed program, at its address and on its data. AwaitReady waits until it is
// ready.
func (cp *ControlPlane) Revive(name string) error {
	p, err := cp.part(name)
	if err != nil {
		return err
	}
	select {
	case <-p.current().Done():
		return p.start(cp)
	default:
		return fmt.Errorf("%s still runs", name)
	}
}

// Signal sends a signal to one of the programs, such as SIGSTOP.
func (cp *ControlPlane) Signal(name string, sig os.Signal) error {
	p, err := cp.part(name)
	if err != nil {
		return err
	}
	return p.current().Signal(sig)
}

// PID is the process id of one of the programs, of its last run.
func (cp *ControlPlane) PID(name string) (int, error) {
	p, err := cp.part(name)
	if err != nil {
		return 0, err
	}
	return p.current().PID(), nil
}

// AwaitReady polls until the API server is ready.
func (cp *ControlPlane) AwaitReady(ctx context.Context) error { return cp.becomeReady(ctx) }
