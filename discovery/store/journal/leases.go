package journal

import (
	"context"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Acquire grants a lease on the preferred proxy.
func (s *Store) Acquire(ctx context.Context, req lease.Request) (lease.Lease, error) {
	var l lease.Lease
	err := s.do(ctx, func(now time.Time) (err error) { l, err = s.ledger.Acquire(now, req); return err })
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
	release := func(now time.Time) error { s.ledger.Release(now, id); return nil }
	if _, err := s.locked(release); err != nil { // unavailable: it is in memory only
		s.mu.Lock()
		_ = release(s.cfg.Clock.Now())
		s.mu.Unlock()
	}
	s.freed.Broadcast()
}

// Renew extends a lease.
func (s *Store) Renew(ctx context.Context, id string, ttl time.Duration) (lease.Lease, error) {
	var l lease.Lease
	err := s.do(ctx, func(now time.Time) (err error) { l, err = s.ledger.Renew(now, id, ttl); return err })
	if err != nil {
		return lease.Lease{}, err // not l, which is not durable
	}
	return l, nil
}

// Get returns a usable lease.
func (s *Store) Get(ctx context.Context, id string) (l lease.Lease, err error) {
	err = s.read(ctx, func(now time.Time) error { l, err = s.ledger.Get(now, id); return err })
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
	err = s.read(ctx, func(now time.Time) error { u = s.ledger.Usage(now); return nil })
	return u, err
}

// List returns one page of the running leases.
func (s *Store) List(ctx context.Context, q lease.Query) (page lease.Page, err error) {
	err = s.read(ctx, func(now time.Time) error { page = s.ledger.List(now, q); return nil })
	return page, err
}

// Cooldowns lists those of a Proxy.
func (s *Store) Cooldowns(ctx context.Context, proxyUID string) (cooldowns []lease.Cooldown, err error) {
	err = s.read(ctx, func(now time.Time) error { cooldowns = s.ledger.Cooldowns(now, proxyUID); return nil })
	return cooldowns, err
}

// EndCooldowns ends cooldowns of a Proxy early.
func (s *Store) EndCooldowns(ctx context.Context, proxyUID, target string) (ended int, err error) {
	err = s.do(ctx, func(now time.Time) error { ended = s.ledger.EndCooldowns(now, proxyUID, target); return nil })
	s.freed.Broadcast()
	return ended, err
}
