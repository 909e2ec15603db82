package stack

import (
	"context"
	"fmt"
	"slices"
	"syscall"
)

// watch notes the first part that ends by itself.
func (s *Stack) watch() {
	for _, c := range s.children {
		s.watchEnd(c.Done(), c.wanted, c.ended)
	}
	s.watchEnd(s.controlPlane.Done(), nil, s.controlPlane.Err)
}

func (s *Stack) watchEnd(done, wanted <-chan struct{}, why func() error) {
	s.watchers.Go(func() {
		select {
		case <-s.quiet:
			return
		case <-wanted:
			return
		case <-done:
		}
		select {
		case <-wanted:
		case <-s.quiet: // both at once: it was stopped
		case s.failed <- why():
		default:
		}
	})
}

// Wait returns nil when ctx ends, and an error when a part of the stack ends by
// itself before, which names it and shows the end of its log.
func (s *Stack) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.failed:
		return err
	}
}

// Crash kills one of the programs with SIGKILL and starts it anew, as a kubelet
// would, and returns when it is ready. Not beside Stop, nor twice at once.
func (s *Stack) Crash(ctx context.Context, name string) error {
	i := slices.IndexFunc(s.children, func(c *child) bool { return c.name == name })
	if i < 0 {
		return fmt.Errorf("crash %s: no such program runs", name)
	}
	old := s.children[i]
	close(old.wanted)
	if err := syscall.Kill(old.PID(), syscall.SIGKILL); err != nil {
		return fmt.Errorf("crash %s: %w", name, err)
	}
	<-old.Done()
	next, err := startProgram(s.cfg.BinDir, s.logDir, old.program)
	if err != nil {
		return fmt.Errorf("start %s anew: %w", name, err)
	}
	s.children[i] = next
	s.watchEnd(next.Done(), next.wanted, next.ended)
	return next.awaitReady(ctx)
}
