// Package journal keeps leases and cooldowns in a file. The authority is a
// ledger in memory; every change of it is in the file before its caller is
// answered. Callers that come while the disk is busy share the next commit.
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
	// Path of the file. It is made when it does not exist; its folder is not.
	Path string
	// Cooldown is the longest cooldown, and for how long an expired lease
	// takes reports; 0 switches both off.
	Cooldown time.Duration
	// Limits of what clients name; lease.DefaultLimits when left out. A file
	// that holds more keeps it until it ends.
	Limits lease.Limits
	// Clock tells the time.
	Clock clock.WithTicker
	// Log receives when the file fails and recovers.
	Log *slog.Logger

	// noSync is for tests: commits that only outlive the process and not the
	// machine.
	noSync bool
}

// Store is a ledger whose changes are kept in a file. All its methods may be
// used from many goroutines. Errors are context errors and those that package
// lease names.
//
// # Outages
//
// Each commit writes the time into the file, and an idle store commits every
// heartbeatInterval. When the file is opened, or works again after it failed,
// the time since the last commit is the outage: all leases that ran then, all
// cooldowns and all sessions go on for that much longer, since their holders
// could not renew. That is at most heartbeatInterval too much and never too
// little: they have the time left that they had at the last commit, wherever the
// clock was set meanwhile. See timeline.
//
// # Failures
//
// When a commit fails, everybody who waits for it gets lease.ErrUnavailable,
// and so do all calls until a commit succeeds, which is tried every
// retryInterval. Then the ledger is read from the file anew, so that nothing
// counts that is not there. Only when the file itself was spoilt meanwhile it is
// the other way round: see rewrite.
type Store struct {
	cfg            Config
	freed, changed lease.Signal
	line           timeline
	file           *file       // the committer's
	known          os.FileInfo // of the file that everything promised is in; nil before the first
	kick           chan struct{}
	stop           chan struct{}
	stopped        chan struct{}

	mu       sync.Mutex
	ledger   *ledger.Ledger
	revision uint64    // that watchers know of
	pending  *batch    // changes that are in no commit yet
	current  *batch    // the commit under way, nil when there is none
	failure  error     // why there is no service, nil while there is
	alive    time.Time // of the last commit, on the timeline
	closed   bool
}

// Open reads the file and goes on where it ends. It refuses files that are
// damaged, that others have open, and that it did not write. While the disk is full
// it opens, and is not ready before there is space.
func Open(cfg Config) (*Store, error) {
	line := timeline{epoch: cfg.Clock.Now()}
	s := &Store{
		cfg: cfg, line: line, pending: newBatch(line),
		kick: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	s.ledger = ledger.New(cfg.Cooldown, ledger.FirstFence(line.epoch), journalFunc(func() ledger.Journal { return s.pending }))
	s.ledger.SetLimits(cmp.Or(cfg.Limits, lease.DefaultLimits))
	switch err := explainFull(cfg.Path, s.restore()); {
	case err != nil && isFull(err):
		cfg.Log.Error("lease store cannot write, nothing is granted until it can", "file", cfg.Path, "err", err)
		s.failure = unavailable(err)
	case err != nil:
		return nil, fmt.Errorf("lease store: %w", err)
	}
	go s.run()
	return s, nil
}

// Close makes durable what is not yet, and lets go of the file.
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

// Run has nothing to do: a Store works from Open to Close.
func (s *Store) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// do makes one call to the ledger, and waits until what the call is built on is
// durable.
func (s *Store) do(ctx context.Context, call func(now time.Time) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	waitFor, err := s.locked(call)
	if err != nil || waitFor == nil {
		return err
	}
	select {
	case <-waitFor.done:
		return waitFor.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// locked makes the call, and returns the last batch that is not durable yet,
// nil when there is none.
func (s *Store) locked(call func(now time.Time) error) (*batch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return nil, s.failure
	}
	err := call(s.cfg.Clock.Now())
	if r := s.ledger.Revision(); r != s.revision {
		s.revision = r
		s.changed.Broadcast()
	}
	if len(s.pending.values) == 0 {
		return s.current, err
	}
	select {
	case s.kick <- struct{}{}:
	default:
	}
	return s.pending, err
}

// read makes a call that has nothing to wait for.
func (s *Store) read(ctx context.Context, call func(now time.Time) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := s.locked(call)
	return err
}

// Offer tells the store of a change of the fleet.
func (s *Store) Offer(offers lease.Offers) {
	s.mu.Lock()
	s.ledger.Offer(offers)
	s.revision = s.ledger.Revision()
	s.mu.Unlock()
	s.changed.Broadcast()
	s.freed.Broadcast()
}

// Freed is closed when a place may have become free before its time.
func (s *Store) Freed() <-chan struct{} { return s.freed.C() }

// Changed is closed when anything in the store changes.
func (s *Store) Changed() <-chan struct{} { return s.changed.C() }

// Ready returns nil when the last commit succeeded, which is never longer ago
// than heartbeatInterval, else why it did not.
func (s *Store) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}
