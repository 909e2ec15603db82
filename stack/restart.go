package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/supervise"
)

// restartDelay is the backoff before a program that exited by itself is restarted.
const restartDelay = time.Second

var (
	ErrNoProgram = errors.New("no such program runs") // the stack runs no program of that name
	ErrRuns      = supervise.ErrRuns                  // the program to start runs already
)

// parts are all programs, those of the control plane first.
func (s *Stack) parts() []*supervise.Part {
	parts := s.controlPlane.Parts()
	for _, c := range s.children {
		parts = append(parts, c.Part)
	}
	return parts
}

// part is the program of that name.
func (s *Stack) part(name string) (*supervise.Part, error) {
	for _, p := range s.parts() {
		if p.Command.Name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", name, ErrNoProgram)
}

// Programs are the names of all programs that can be killed, those of the control plane first.
func (s *Stack) Programs() []string {
	var names []string
	for _, p := range s.parts() {
		names = append(names, p.Command.Name)
	}
	return names
}

// Kill sends SIGKILL to a program and waits until it is gone. The stack does not count this exit as
// a failure. It must not run concurrently with Stop.
func (s *Stack) Kill(name string) error {
	p, err := s.part(name)
	if err != nil {
		return err
	}
	return p.Kill()
}

// Revive restarts a program that was killed, at the addresses that it had. AwaitReady waits until
// it is ready. It must not run concurrently with Stop.
func (s *Stack) Revive(name string) error {
	p, err := s.part(name)
	if err != nil {
		return err
	}
	return revive(p)
}

func revive(p *supervise.Part) error {
	if err := p.Start(); err != nil {
		return fmt.Errorf("restart %s: %w", p.Command.Name, err)
	}
	p.Watch()
	return nil
}

// AwaitReady waits until a program is ready.
func (s *Stack) AwaitReady(ctx context.Context, name string) error {
	for _, c := range s.children {
		if c.name == name {
			return c.awaitReady(ctx)
		}
	}
	if _, err := s.part(name); err != nil {
		return err
	}
	return s.controlPlane.AwaitReady(ctx)
}

// Signal sends a signal to a program, such as SIGSTOP.
func (s *Stack) Signal(name string, sig os.Signal) error {
	p, err := s.part(name)
	if err != nil {
		return err
	}
	return p.Current().Signal(sig)
}

// PID is the process id of a program, of its last run.
func (s *Stack) PID(name string) (int, error) {
	p, err := s.part(name)
	if err != nil {
		return 0, err
	}
	return p.Current().PID(), nil
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

// ended handles the exit of a program of ours by itself: it fails the stack; with Config.Ended it
// calls that and restarts the program.
func (s *Stack) ended(p *supervise.Part, err error) {
	if s.cfg.Ended == nil {
		s.fail(err)
		return
	}
	s.cfg.Ended(p.Command.Name, err)
	select {
	case <-s.group.Quiet():
		return
	case <-time.After(restartDelay):
	}
	if err := revive(p); err != nil && !errors.Is(err, ErrRuns) {
		s.fail(err)
	}
}

// fail records the first failure.
func (s *Stack) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// Wait returns nil when ctx ends. When a part of the stack exits by itself before, it returns an
// error that names the part and contains the end of its log.
func (s *Stack) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.failed:
		return err
	case <-s.controlPlane.Done():
		return s.controlPlane.Err()
	}
}
