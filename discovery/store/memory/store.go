// Package memory keeps leases and cooldowns in this process's memory. They are
// lost when it ends.
package memory

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/ledger"
)

// sweepInterval is how often Run drops what has ended. Every call does so too;
// the sweep frees memory and wakes watchers when no call comes.
const sweepInterval = time.Second

// Store is a ledger behind one lock. All its methods may be used from many
// goroutines. Errors are context errors and those that package lease names.
type Store struct {
	clock          clock.WithTicker
	freed, changed lease.Signal

	mu       sync.Mutex
	ledger   *ledger.Ledger
	revision uint64 // that watchers know of
}

// New returns an empty store. Cooldowns take parts of window, and an expired
// lease takes reports for as long; 0 switches both off.
//
// Fencing tokens start at the clock's microseconds since 1970 and grow by one,
// so that they keep growing over a restart.
func New(clk clock.WithTicker, window time.Duration) *Store {
	return &Store{clock: clk, ledger: ledger.New(window, ledger.FirstFence(clk.Now()), nil)}
}

// Limit sets limits other than lease.DefaultLimits, for tests. Call it first.
func (s *Store) Limit(l lease.Limits) { s.ledger.SetLimits(l) }

// Run frees memory until ctx ends. Correctness does not depend on it.
func (s *Store) Run(ctx context.Context) error {
	ticker := s.clock.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			_ = s.do(ctx, func(now time.Time) error { s.ledger.Advance(now); return nil })
		}
	}
}

// do makes one call to the ledger, and wakes those who wait for a change.
func (s *Store) do(ctx context.Context, call func(now time.Time) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := call(s.clock.Now())
	if r := s.ledger.Revision(); r != s.revision {
		s.revision = r
		s.changed.Broadcast()
	}
	return err
}

// Offer tells the store of a change of the fleet.
func (s *Store) Offer(offers lease.Offers) {
	_ = s.do(context.Background(), func(time.Time) error { s.ledger.Offer(offers); return nil })
	s.freed.Broadcast()
}

// Acquire chooses the preferred proxy with room and no cooldown for the target,
// and grants a lease on it, in one step.
func (s *Store) Acquire(ctx context.Context, req lease.Request) (l lease.Lease, err error) {
	err = s.do(ctx, func(now time.Time) error { l, err = s.ledger.Acquire(now, req); return err })
	return l, err
}

// Renew prolongs a lease.
func (s *Store) Renew(ctx context.Context, id string, ttl time.Duration) (l lease.Lease, err error) {
	err = s.do(ctx, func(now time.Time) error { l, err = s.ledger.Renew(now, id, ttl); return err })
	return l, err
}

// Get returns a lease that can be used.
func (s *Store) Get(ctx context.Context, id string) (l lease.Lease, err error) {
	err = s.do(ctx, func(now time.Time) error { l, err = s.ledger.Get(now, id); return err })
	return l, err
}

// Release ends the lease with that id. An unknown id is not an error: the
// lease is over, as asked.
func (s *Store) Release(ctx context.Context, id string) error {
	err := s.do(ctx, func(now time.Time) error { s.ledger.Release(now, id); return nil })
	s.freed.Broadcast()
	return err
}

// Report starts a cooldown if the result calls for one.
func (s *Store) Report(ctx context.Context, id string, rep lease.Report) error {
	return s.do(ctx, func(now time.Time) error { return s.ledger.Report(now, id, rep) })
}

// Usage counts running leases and lists the cooldowns for all targets.
func (s *Store) Usage(ctx context.Context) (u lease.Usage, err error) {
	err = s.do(ctx, func(now time.Time) error { u = s.ledger.Usage(now); return nil })
	return u, err
}

// List returns a part of the leases that run.
func (s *Store) List(ctx context.Context, q lease.Query) (page lease.Page, err error) {
	err = s.do(ctx, func(now time.Time) error { page = s.ledger.List(now, q); return nil })
	return page, err
}

// Cooldowns lists those of a Proxy.
func (s *Store) Cooldowns(ctx context.Context, proxyUID string) (cooldowns []lease.Cooldown, err error) {
	err = s.do(ctx, func(now time.Time) error { cooldowns = s.ledger.Cooldowns(now, proxyUID); return nil })
	return cooldowns, err
}

// EndCooldowns ends cooldowns of a Proxy before their time.
func (s *Store) EndCooldowns(ctx context.Context, proxyUID, target string) (ended int, err error) {
	err = s.do(ctx, func(now time.Time) error { ended = s.ledger.EndCooldowns(now, proxyUID, target); return nil })
	s.freed.Broadcast()
	return ended, err
}

// Freed is closed when a place may have become free before its time.
func (s *Store) Freed() <-chan struct{} { return s.freed.C() }

// Changed is closed when anything in the store changes.
func (s *Store) Changed() <-chan struct{} { return s.changed.C() }

// Ready returns nil: memory is always there.
func (s *Store) Ready() error { return nil }

// Close has nothing to do.
func (s *Store) Close() error { return nil }
