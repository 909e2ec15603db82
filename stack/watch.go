package stack

import (
	"context"
	"errors"
	"time"
)

// restartDelay is how long a program that ended by itself stays away, where it is
// started again.
const restartDelay = time.Second

// watch notes the first part that ends by itself.
func (s *Stack) watch() {
	for _, c := range s.children {
		s.watchChild(c)
	}
	s.watchEnd(s.controlPlane.Done(), nil, func() { s.fail(s.controlPlane.Err()) })
}

// watchChild fails the stack when the child ends by itself, or tells Ended and
// starts it again.
func (s *Stack) watchChild(c *child) {
	s.watchEnd(c.Done(), c.wanted, func() {
		if s.cfg.Ended == nil {
			s.fail(c.ended())
			return
		}
		s.cfg.Ended(c.name, c.ended())
		select {
		case <-s.quiet:
			return
		case <-time.After(restartDelay):
		}
		c.expectEnd()
		if err := s.Revive(c.name); err != nil && !errors.Is(err, ErrRuns) {
			s.fail(err)
		}
	})
}

// watchEnd calls then when done is closed and nobody wanted it.
func (s *Stack) watchEnd(done, wanted <-chan struct{}, then func()) {
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
		default:
			then()
		}
	})
}

// fail notes the first failure.
func (s *Stack) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
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
