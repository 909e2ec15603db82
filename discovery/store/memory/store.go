// Package memory keeps leases and cooldowns in memory. A restart loses them.
package memory

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/ledger"
)

// sweepInterval is how often Run removes what has ended. Every call does so too; the sweep
// frees the memory of an idle store and closes Changed.
const sweepInterval = time.Second

// Store is a ledger behind one lock. It is safe for concurrent use. Errors are context
// errors and those of lease.Store.
type Store struct {
	clock          clock.WithTicker
	freed, changed lease.Signal

	mu       sync.Mutex
	ledger   *ledger.Ledger
	revision uint64 // of the ledger when changed was last closed
}

// New returns an empty store. Cooldowns take cooldown or a part of it, and an expired
// lease takes reports for as long; 0 disables both.
//
// Fencing tokens start at the clock's microseconds since 1970, so that they grow over
// restarts.
func New(clk clock.WithTicker, cooldown time.Duration) *Store {
	return &Store{clock: clk, ledger: ledger.New(cooldown, ledger.FirstFence(clk.Now()), nil)}
}

// Limit replaces lease.DefaultLimits, for tests. Call it first.
func (s *Store) Limit(l lease.Limits) { s.ledger.SetLimits(l) }

// Run removes what has ended until ctx ends. Correctness does not depend on it.
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

// do makes one call to the ledger, and closes changed if that changed it.
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

// Offer applies a change of the fleet.
func (s *Store) Offer(offers lease.Offers) {
	_ = s.do(context.Background(), func(time.Time) error { s.ledger.Offer(offers); return nil })
	s.freed.Broadcast()
}

// Acquire grants a lease on the preferred proxy.
func (s *Store) Acquire(ctx context.Context, req lease.Request) (l lease.Lease, err error) {
	err = s.do(ctx, func(now time.Time) error { l, err = s.ledger.Acquire(now, req); return err })
	return l, err
}

// Renew extends a lease.
func (s *Store) Renew(ctx context.Context, id string, ttl time.Duration) (l lease.Lease, err error) {
	err = s.do(ctx, func(now time.Time) error { l, err = s.ledger.Renew(now, id, ttl); return err })
	return l, err
}

// Get returns a usable lease.
func (s *Store) Get(ctx context.Context, id string) (l lease.Lease, err error) {
	err = s.do(ctx, func(now time.Time) error { l, err = s.ledger.Get(now, id); return err })
	return l, err
}

// Release ends a lease. It is idempotent: an unknown id is no error.
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

// List returns one page of the running leases.
func (s *Store) List(ctx context.Context, q lease.Query) (page lease.Page, err error) {
	err = s.do(ctx, func(now time.Time) error { page = s.ledger.List(now, q); return nil })
	return page, err
}

// Cooldowns lists those of a Proxy.
func (s *Store) Cooldowns(ctx context.Context, proxyUID string) (cooldowns []lease.Cooldown, err error) {
	err = s.do(ctx, func(now time.Time) error { cooldowns = s.ledger.Cooldowns(now, proxyUID); return nil })
	return cooldowns, err
}

// EndCooldowns ends cooldowns of a Proxy early.
func (s *Store) EndCooldowns(ctx context.Context, proxyUID, target string) (ended int, err error) {
	err = s.do(ctx, func(now time.Time) error { ended = s.ledger.EndCooldowns(now, proxyUID, target); return nil })
	s.freed.Broadcast()
	return ended, err
}

// Freed is closed when a slot may have become free early.
func (s *Store) Freed() <-chan struct{} { return s.freed.C() }

// Changed is closed when anything in the store changes.
func (s *Store) Changed() <-chan struct{} { return s.changed.C() }

// Ready returns nil: memory is always available.
func (s *Store) Ready() error { return nil }

// Close does nothing.
func (s *Store) Close() error { return nil }
