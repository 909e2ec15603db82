package journal

import (
	"errors"
	"fmt"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/ledger"
)

const (
	// heartbeatInterval is how often an idle store commits the time.
	heartbeatInterval = 5 * time.Second
	// retryInterval is how often a failed file is retried.
	retryInterval = time.Second
	// sweepInterval is how often an idle store removes what has ended.
	sweepInterval = time.Second
)

// errClosed: Close was called.
var errClosed = errors.New("the store is closed")

// unavailable returns an error that unwraps to lease.ErrUnavailable.
func unavailable(cause error) error { return fmt.Errorf("%w: %w", lease.ErrUnavailable, cause) }

// run commits the pending changes until Close.
func (s *Store) run() {
	defer close(s.stopped)
	if s.Ready() != nil {
		s.reopenLoop()
	}
	sweep := s.cfg.Clock.NewTicker(sweepInterval)
	defer sweep.Stop()
	last := s.cfg.Clock.Now()
	for open := true; open; {
		beat := false
		select {
		case <-s.kick:
		case <-sweep.C():
			now := s.cfg.Clock.Now()
			_, _ = s.locked(func(g *ledger.Ledger, now time.Time) error { g.Advance(now); return nil })
			if beat = now.Sub(last) >= heartbeatInterval; beat {
				last = now
			}
		case <-s.stop:
			open = false
		}
		if err := s.flush(beat); err != nil && open {
			s.reopenLoop()
		}
	}
	s.fail(errClosed)
	if s.file != nil {
		_ = s.file.close()
	}
}

// flush commits the pending changes; with beat it commits the time even without any.
func (s *Store) flush(beat bool) error {
	s.mu.Lock()
	b := s.pending.batch
	if s.failure != nil || len(b.values) == 0 && !beat {
		s.mu.Unlock()
		return nil
	}
	s.pending.batch, s.current = newBatch(s.line), b
	meta := storedMeta{Alive: s.line.nanos(s.cfg.Clock.Now()), Fence: s.ledger.Fence()}
	s.mu.Unlock()

	err := explainFull(s.cfg.Path, s.file.commit(b, meta))
	if err != nil {
		s.cfg.Log.Error("cannot write the lease file; nothing is granted until a retry succeeds", "file", s.cfg.Path, "err", err)
		s.fail(err)
		return err
	}
	s.mu.Lock()
	s.current, s.alive = nil, at(meta.Alive)
	s.mu.Unlock()
	b.finish(nil)
	return nil
}

// fail makes the store unavailable, and fails all calls that wait for a commit.
func (s *Store) fail(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = unavailable(cause)
	for _, b := range []*batch{s.current, s.pending.batch} {
		if b != nil {
			b.finish(s.failure)
		}
	}
	s.current, s.pending.batch = nil, newBatch(s.line)
}

// reopenLoop retries to open the file until it works or the store is closed.
func (s *Store) reopenLoop() {
	retry := s.cfg.Clock.NewTicker(retryInterval)
	defer retry.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-retry.C():
		}
		err := explainFull(s.cfg.Path, s.restore())
		if err == nil {
			s.cfg.Log.Info("lease file can be written again", "file", s.cfg.Path)
			s.NotifyFreed()
			s.mu.Lock()
			s.NotifyChanged(s.ledger) // Reset is a change
			s.mu.Unlock()
			return
		}
		s.mu.Lock()
		s.failure = unavailable(err)
		s.mu.Unlock()
	}
}
