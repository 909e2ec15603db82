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
	*ledger.Calls
	clock clock.WithTicker

	mu     sync.Mutex
	ledger *ledger.Ledger
}

// New returns an empty store. Cooldowns take cooldown or a part of it, and an expired
// lease takes reports for as long; 0 disables both.
//
// Fencing tokens start at the clock's microseconds since 1970, so that they grow over
// restarts.
func New(clk clock.WithTicker, cooldown time.Duration) *Store {
	s := &Store{clock: clk, ledger: ledger.New(cooldown, ledger.FirstFence(clk.Now()), nil)}
	s.Calls = ledger.NewCalls(s.do)
	return s
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
			_ = s.do(ctx, false, func(g *ledger.Ledger, now time.Time) error { g.Advance(now); return nil })
		}
	}
}

// do is a ledger.Do.
func (s *Store) do(ctx context.Context, _ bool, call func(g *ledger.Ledger, now time.Time) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.NotifyChanged(s.ledger)
	return call(s.ledger, s.clock.Now())
}

// Offer applies a change of the fleet.
func (s *Store) Offer(offers lease.Offers) {
	_ = s.do(context.Background(), false, func(g *ledger.Ledger, _ time.Time) error { g.Offer(offers); return nil })
	s.NotifyFreed()
}

// Ready returns nil: memory is always available.
func (s *Store) Ready() error { return nil }

// Close does nothing.
func (s *Store) Close() error { return nil }
