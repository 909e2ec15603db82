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

// rowKey identifies a value in the file.
type rowKey struct{ bucket, key string }

// batch is the changes of one commit. It is a ledger.Journal; the last change of a row
// counts.
type batch struct {
	line   timeline
	values map[rowKey]any // nil deletes the row
	done   chan struct{}  // closed when err is set
	err    error
}

func newBatch(line timeline) *batch {
	return &batch{line: line, values: map[rowKey]any{}, done: make(chan struct{})}
}

func (b *batch) finish(err error) {
	b.err = err
	close(b.done)
}

// PutLease and the other methods implement ledger.Journal.
func (b *batch) PutLease(r ledger.Record) {
	b.values[rowKey{bucketLeases, leaseKey(r.FencingToken)}] = storeLease(r, b.line)
}

// DeleteLease implements ledger.Journal.
func (b *batch) DeleteLease(r ledger.Record) {
	b.values[rowKey{bucketLeases, leaseKey(r.FencingToken)}] = nil
}

// PutCooldown implements ledger.Journal.
func (b *batch) PutCooldown(c ledger.Cooldown) {
	b.values[rowKey{bucketCooldowns, key(c.ProxyUID, c.Target)}] = storedCooldown{c.ProxyUID, c.Target, b.line.nanos(c.Until)}
}

// DeleteCooldown implements ledger.Journal.
func (b *batch) DeleteCooldown(c ledger.Cooldown) {
	b.values[rowKey{bucketCooldowns, key(c.ProxyUID, c.Target)}] = nil
}

// PutSession implements ledger.Journal.
func (b *batch) PutSession(s ledger.Session) {
	b.values[rowKey{bucketSessions, key(s.Holder, s.Name)}] = storedSession{[]byte(s.Holder), []byte(s.Name), s.Instance.ProxyUID, s.Instance.ID, b.line.nanos(s.Until)}
}

// DeleteSession implements ledger.Journal.
func (b *batch) DeleteSession(s ledger.Session) {
	b.values[rowKey{bucketSessions, key(s.Holder, s.Name)}] = nil
}

// putAll adds a whole state.
func (b *batch) putAll(s ledger.State) {
	for _, r := range s.Leases {
		b.PutLease(r)
	}
	for _, c := range s.Cooldowns {
		b.PutCooldown(c)
	}
	for _, x := range s.Sessions {
		b.PutSession(x)
	}
}

// openBatch is a ledger.Journal that writes to the batch that is open now.
type openBatch struct{ *batch }
