// Package journal keeps leases and cooldowns in a file. The authority is a ledger in
// memory; a call returns once its changes are committed to the file. Calls that arrive
// during a commit share the next one.
package journal

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/ledger"
)

// Config of a Store. All fields but Limits are required.
type Config struct {
	// Path of the file. A missing file is created; a missing folder is an error.
	Path string
	// Cooldown is the length of cooldowns, see lease.Report.Cooldown, and for how long an
	// expired lease takes reports; 0 switches both off.
	Cooldown time.Duration
	// Limits default to lease.DefaultLimits. What a file has beyond them stays until
	// it expires.
	Limits lease.Limits
	// Clock is the time source.
	Clock clock.WithTicker
	// Log gets a line when the file fails and when it works again.
	Log *slog.Logger

	// noSync is for tests: commits survive a crash of the process, not of the machine.
	noSync bool
}

// Store is a ledger whose changes are kept in a file. It is safe for concurrent use.
// Errors are context errors and those of lease.Store.
//
// # Outages
//
// Each commit writes the time, and an idle store commits every heartbeatInterval. When
// the file is opened, or works again after a failure, the time since the last commit is
// the outage. All leases, cooldowns and sessions are extended by it, since holders could
// not renew: they have as much time left as at the last commit. That is at most
// heartbeatInterval too much and never too little, however the clock was set. See
// timeline.
//
// # Failures
//
// When a commit fails, all calls that wait for it return lease.ErrUnavailable, and so do
// all later calls until a retry, every retryInterval, succeeds. The ledger is then reset
// to the contents of the file, so that nothing counts that was not committed. Only a file
// that was damaged meanwhile is rewritten from the ledger: see rewrite.
type Store struct {
	*ledger.Calls
	cfg     Config
	line    timeline
	file    *file       // used by run alone
	known   os.FileInfo // of the file that has all commits; nil before the first open
	kick    chan struct{}
	stop    chan struct{}
	stopped chan struct{}

	mu      sync.Mutex
	ledger  *ledger.Ledger
	pending openBatch // changes to commit
	current *batch    // of the commit in progress, nil when there is none
	failure error     // why the store is unavailable, nil while it is not
	alive   time.Time // of the last commit, on the timeline
	closed  bool
}

// Open opens the file and restores its contents. It refuses files that are damaged, in
// use by another process, or of another format. With a full disk it succeeds, and the
// store is not ready until there is space.
func Open(cfg Config) (*Store, error) {
	line := timeline{epoch: cfg.Clock.Now()}
	s := &Store{
		cfg: cfg, line: line, pending: openBatch{newBatch(line)},
		kick: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	s.Calls = ledger.NewCalls(s.do)
	s.ledger = ledger.New(cfg.Cooldown, ledger.FirstFence(line.epoch), &s.pending)
	s.ledger.SetLimits(cmp.Or(cfg.Limits, lease.DefaultLimits))
	switch err := explainFull(cfg.Path, s.restore()); {
	case err != nil && isFull(err):
		cfg.Log.Error("cannot write the lease file; nothing is granted until a retry succeeds", "file", cfg.Path, "err", err)
		s.failure = unavailable(err)
	case err != nil:
		return nil, fmt.Errorf("lease store: %w", err)
	}
	go s.run()
	return s, nil
}

// Close commits the pending changes and closes the file.
func (s *Store) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		close(s.stop)
	}
	<-s.stopped
	return nil
}

// Run does nothing: a Store works from Open to Close.
func (s *Store) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Acquire grants a lease on the preferred proxy.
func (s *Store) Acquire(ctx context.Context, req lease.Request) (lease.Lease, error) {
	l, err := s.Calls.Acquire(ctx, req)
	if err == nil {
		return l, nil
	}
	// A lease with a key stays: the client may have received it in a retry.
	if l.ID != "" && !l.Replayed && req.Key == "" {
		s.rollBack(l.ID)
	}
	return lease.Lease{}, err
}

// rollBack releases a lease that its client did not receive: the client left before the
// commit, or the commit failed.
func (s *Store) rollBack(id string) {
	release := func(g *ledger.Ledger, now time.Time) error { g.Release(now, id); return nil }
	if _, err := s.locked(release); err != nil { // unavailable: it is in memory only
		s.mu.Lock()
		_ = release(s.ledger, s.cfg.Clock.Now())
		s.mu.Unlock()
	}
	s.NotifyFreed()
}

// do is a ledger.Do. A durable call waits until its changes, and those that it has read,
// are committed.
func (s *Store) do(ctx context.Context, durable bool, call func(g *ledger.Ledger, now time.Time) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	waitFor, err := s.locked(call)
	if err != nil || waitFor == nil || !durable {
		return err
	}
	select {
	case <-waitFor.done:
		return waitFor.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// locked makes the call, and returns the last batch that is not committed yet, nil when
// there is none.
func (s *Store) locked(call func(g *ledger.Ledger, now time.Time) error) (*batch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return nil, s.failure
	}
	err := call(s.ledger, s.cfg.Clock.Now())
	s.NotifyChanged(s.ledger)
	if len(s.pending.values) == 0 {
		return s.current, err
	}
	select {
	case s.kick <- struct{}{}:
	default:
	}
	return s.pending.batch, err
}

// Offer applies a change of the fleet.
func (s *Store) Offer(offers lease.Offers) {
	s.mu.Lock()
	s.ledger.Offer(offers)
	s.NotifyChanged(s.ledger)
	s.mu.Unlock()
	s.NotifyFreed()
}

// Ready returns nil when the last commit, at most heartbeatInterval ago, succeeded.
func (s *Store) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}
