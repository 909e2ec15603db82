package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
)

var (
	// ErrNoProgram: the stack runs no program of that name.
	ErrNoProgram = errors.New("no such program runs")
	// ErrRuns: the program to start runs already.
	ErrRuns = errors.New("it still runs")
)

// isControlPlane reports whether it is a program of the control plane, and not ours.
func isControlPlane(name string) bool {
	return name == controlplane.Etcd || name == controlplane.APIServer
}

// Programs are the names of all programs that can be killed, those of the control plane first.
func (s *Stack) Programs() []string {
	s.childrenMu.Lock()
	defer s.childrenMu.Unlock()
	names := []string{controlplane.Etcd, controlplane.APIServer}
	for _, c := range s.children {
		names = append(names, c.name)
	}
	return names
}

// Kill sends SIGKILL to a program and waits until it is gone. The stack does not count this exit as
// a failure. It must not run concurrently with Stop.
func (s *Stack) Kill(name string) error {
	if isControlPlane(name) {
		return s.controlPlane.Kill(name)
	}
	c, err := s.child(name)
	if err != nil {
		return err
	}
	c.expectEnd() // also after an exit a moment ago: the restart is the caller's task now
	if err := c.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-c.Done()
	return nil
}

// Revive restarts a program that was killed, at the addresses that it had. AwaitReady waits until
// it is ready. It must not run concurrently with Stop.
func (s *Stack) Revive(name string) error {
	if isControlPlane(name) {
		return s.controlPlane.Revive(name)
	}
	s.childrenMu.Lock()
	defer s.childrenMu.Unlock()
	i := slices.IndexFunc(s.children, func(c *child) bool { return c.name == name })
	if i < 0 {
		return fmt.Errorf("restart %s: %w", name, ErrNoProgram)
	}
	select {
	case <-s.children[i].Done():
	default: // restarted meanwhile
		return fmt.Errorf("restart %s: %w", name, ErrRuns)
	}
	next, err := startProgram(s.cfg.BinDir, s.logDir, s.children[i].program)
	if err != nil {
		return fmt.Errorf("restart %s: %w", name, err)
	}
	s.children[i] = next
	s.watchChild(next)
	return nil
}

// AwaitReady waits until a program is ready.
func (s *Stack) AwaitReady(ctx context.Context, name string) error {
	if isControlPlane(name) {
		return s.controlPlane.AwaitReady(ctx)
	}
	c, err := s.child(name)
	if err != nil {
		return err
	}
	return c.awaitReady(ctx)
}

// Signal sends a signal to a program, such as SIGSTOP.
func (s *Stack) Signal(name string, sig os.Signal) error {
	if isControlPlane(name) {
		return s.controlPlane.Signal(name, sig)
	}
	c, err := s.child(name)
	if err != nil {
		return err
	}
	return c.Signal(sig)
}

// PID is the process id of a program, of its last run.
func (s *Stack) PID(name string) (int, error) {
	if isControlPlane(name) {
		return s.controlPlane.PID(name)
	}
	c, err := s.child(name)
	if err != nil {
		return 0, err
	}
	return c.PID(), nil
}

// Crash sends SIGKILL to a program, restarts it as a kubelet would, and returns when it is ready.
// It must not run concurrently with Stop.
func (s *Stack) Crash(ctx context.Context, name string) error {
	if err := s.Kill(name); err != nil {
		return fmt.Errorf("crash %s: %w", name, err)
	}
	if err := s.Revive(name); err != nil {
		return err
	}
	return s.AwaitReady(ctx, name)
}

func (s *Stack) child(name string) (*child, error) {
	s.childrenMu.Lock()
	defer s.childrenMu.Unlock()
	i := slices.IndexFunc(s.children, func(c *child) bool { return c.name == name })
	if i < 0 {
		return nil, fmt.Errorf("%s: %w", name, ErrNoProgram)
	}
	return s.children[i], nil
}

// expectEnd marks the exit of the child as expected.
func (c *child) expectEnd() { c.wantEnd.Do(func() { close(c.wanted) }) }
