package journal

import (
	"errors"
	"fmt"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/ledger"
)

const (
	// heartbeatInterval is how often an idle store writes that it is alive.
	heartbeatInterval = 5 * time.Second
	// retryInterval is how often a file is tried again that has failed.
	retryInterval = time.Second
	// sweepInterval is how often what has ended is dropped when no call comes.
	sweepInterval = time.Second
)

// errClosed: Close was called.
var errClosed = errors.New("it is closed")

// unavailable makes an error that unwraps to lease.ErrUnavailable.
func unavailable(cause error) error { return fmt.Errorf("%w: %w", lease.ErrUnavailable, cause) }

// run commits what is pending until Close.
func (s *Store) run() {
	defer close(s.stopped)
	sweep := s.cfg.Clock.NewTicker(sweepInterval)
	defer sweep.Stop()
	last := s.cfg.Clock.Now()
	for open := true; open; {
		beat := false
		select {
		case <-s.kick:
		case <-sweep.C():
			now := s.cfg.Clock.Now()
			_, _ = s.locked(func(now time.Time) error { s.ledger.Advance(now); return nil })
			if beat = now.Sub(last) >= heartbeatInterval; beat {
				last = now
			}
		case <-s.stop:
			open = false
		}
		if err := s.flush(beat); err != nil && open {
			s.recover()
		}
	}
	s.fail(errClosed)
	if s.file != nil {
		_ = s.file.close()
	}
}

// flush commits what is pending, or, when beat is true, at least the time.
func (s *Store) flush(beat bool) error {
	s.mu.Lock()
	b := s.pending
	if s.failure != nil || len(b.values) == 0 && !beat {
		s.mu.Unlock()
		return nil
	}
	s.pending, s.current = newBatch(), b
	meta := storedMeta{Alive: s.cfg.Clock.Now().UnixNano(), Fence: s.ledger.Fence()}
	s.mu.Unlock()

	err := s.file.commit(b, meta)
	if err != nil {
		s.cfg.Log.Error("lease store cannot write, nothing is granted until it can", "file", s.cfg.Path, "err", err)
		s.fail(err)
		return err
	}
	s.mu.Lock()
	s.current = nil
	s.mu.Unlock()
	b.finish(nil)
	return nil
}

// fail ends the service, and tells all who wait that what they did is lost.
func (s *Store) fail(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = unavailable(cause)
	for _, b := range []*batch{s.current, s.pending} {
		if b != nil {
			b.finish(s.failure)
		}
	}
	s.current, s.pending = nil, newBatch()
}

// recover tries the file again until it works or the store is closed.
func (s *Store) recover() {
	retry := s.cfg.Clock.NewTicker(retryInterval)
	defer retry.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-retry.C():
		}
		err := s.restore()
		if err == nil {
			s.cfg.Log.Info("lease store can write again", "file", s.cfg.Path)
			s.freed.Broadcast()
			s.changed.Broadcast()
			return
		}
		s.mu.Lock()
		s.failure = unavailable(err)
		s.mu.Unlock()
	}
}

// restore opens the file, proves that it can be written to, and puts what it
// holds into the ledger. A transaction that failed may have left bbolt and the
// disk of different minds: it is opened anew to find out what was kept.
func (s *Store) restore() error {
	if s.file != nil {
		_ = s.file.close()
		s.file = nil
	}
	f, err := openFile(s.cfg.Path, s.cfg.noSync, s.cfg.open)
	if err != nil {
		return err
	}
	held, err := f.load()
	if err == nil {
		err = s.adopt(f, held)
	}
	if err != nil {
		_ = f.close()
		return err
	}
	s.file = f
	return nil
}

// adopt writes the prolonged state, and serves it once that is durable: an
// outage must not be counted twice, and not be lost either.
func (s *Store) adopt(f *file, held stored) error {
	s.mu.Lock()
	fence := max(s.ledger.Fence(), held.Fence)
	s.mu.Unlock()
	now := s.cfg.Clock.Now()
	if outage := now.Sub(held.alive); !held.alive.IsZero() && outage > 0 {
		prolong(&held.State, held.alive, outage)
		s.cfg.Log.Info("lease store goes on", "file", s.cfg.Path, "leases", len(held.Leases), "cooldowns", len(held.Cooldowns), "prolonged", outage.String())
	}
	b := newBatch()
	for _, r := range held.Leases {
		b.PutLease(r)
	}
	for _, c := range held.Cooldowns {
		b.PutCooldown(c)
	}
	for _, x := range held.Sessions {
		b.PutSession(x)
	}
	if err := f.commit(b, storedMeta{Alive: now.UnixNano(), Fence: fence}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.Reset(held.State)
	s.pending, s.current, s.failure = newBatch(), nil, nil
	return nil
}

// prolong gives everything that had not ended when the store was last alive the
// time back in which it was not.
func prolong(s *ledger.State, alive time.Time, outage time.Duration) {
	give := func(end *time.Time) {
		if end.After(alive) {
			*end = end.Add(outage)
		}
	}
	for i := range s.Leases {
		give(&s.Leases[i].ExpiresAt)
	}
	for i := range s.Cooldowns {
		give(&s.Cooldowns[i].Until)
	}
	for i := range s.Sessions {
		give(&s.Sessions[i].Until)
	}
}
