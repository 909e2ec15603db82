package stack

import (
	"context"
	"errors"
	"time"
)

// restartDelay is the backoff before a program that exited by itself is restarted.
const restartDelay = time.Second

// watch records the first part that exits by itself.
func (s *Stack) watch() {
	for _, c := range s.children {
		s.watchChild(c)
	}
	s.watchEnd(s.controlPlane.Done(), nil, func() { s.fail(s.controlPlane.Err()) })
}

// watchChild fails the stack when the child exits by itself; with Config.Ended it calls that and
// restarts the child.
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

// watchEnd calls then when done is closed unexpectedly.
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
		case <-s.quiet: // both at once: the stack stopped it
		default:
			then()
		}
	})
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
	}
}
