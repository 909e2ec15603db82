package redis

import (
	"context"
	"fmt"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/ledger"
)

// Get returns a lease that can be used, as Redis has it.
func (s *Store) Get(ctx context.Context, id string) (lease.Lease, error) {
	if err := s.refresh(ctx); err != nil {
		return lease.Lease{}, err
	}
	return s.get(id)
}

func (s *Store) get(id string) (lease.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mirror.Get(s.time.now(), id)
}

// Renew prolongs a lease.
func (s *Store) Renew(ctx context.Context, id string, ttl time.Duration) (lease.Lease, error) {
	if err := ctx.Err(); err != nil {
		return lease.Lease{}, err
	}
	if _, err := s.get(id); err != nil {
		// Another replica may know better.
		if _, err := s.Get(ctx, id); err != nil {
			return lease.Lease{}, err
		}
	}
	r, ok := s.find(id)
	switch {
	case !ok:
		return lease.Lease{}, lease.ErrUnknown
	case !r.ExpiresAt.After(s.now()): // it was not when we looked
		return lease.Lease{}, &lease.EndedError{Reason: lease.EndExpired, Lease: r.Lease}
	}
	status, err := s.about(ctx, id, s.scripts.renew, id, ttl.Microseconds(),
		lease.SessionIdle.Microseconds(),
		ownedName(r.Holder, r.Key), ownedName(r.Holder, r.Session))
	switch {
	case err != nil:
		return lease.Lease{}, err
	case status == statusUnknown:
		return lease.Lease{}, lease.ErrUnknown
	case status == statusExpired:
		return lease.Lease{}, &lease.EndedError{Reason: lease.EndExpired, Lease: r.Lease}
	}
	if err := s.ensureLoaded(ctx); err != nil {
		return lease.Lease{}, err
	}
	return s.get(id)
}

// now is the time of Redis, as far as is known.
func (s *Store) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.time.now()
}

func (s *Store) find(id string) (ledger.Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mirror.Find(s.time.now(), id)
}

// Release ends the lease with that id. An unknown id is not an error: the
// lease is over, as asked.
func (s *Store) Release(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := s.about(ctx, id, s.scripts.release, id, lease.SessionIdle.Microseconds())
	return err
}

// Report starts a cooldown if the result calls for one.
func (s *Store) Report(ctx context.Context, id string, rep lease.Report) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r, ok := s.find(id)
	if !ok {
		if err := s.sync(ctx); err != nil {
			return err
		}
		if r, ok = s.find(id); !ok {
			return lease.ErrUnknown
		}
	}
	target, length := rep.Cooldown(r.Target, s.cfg.Cooldown)
	status, err := s.about(ctx, id, s.scripts.report, id, pair(r.Instance.ProxyUID, target), length.Microseconds(),
		s.cfg.Limits.TargetsPerProxy, s.cfg.Limits.Targets)
	switch {
	case err != nil:
		return err
	case status == statusUnknown:
		return lease.ErrUnknown
	case status == statusFull:
		return s.limited(func() *lease.LimitError { return s.mirror.TargetLimitError(r.Instance.ProxyUID) })
	case status != statusOK:
		return fmt.Errorf("%w: Redis answered %q", lease.ErrUnavailable, status)
	}
	return nil
}

// limited says what is full, as the mirror knows it now that Redis has said that
// something is.
func (s *Store) limited(what func() *lease.LimitError) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mirror.Advance(s.time.now())
	return what()
}

// Usage counts running leases and lists the cooldowns for all targets. What
// other replicas did within the last second may be missing.
func (s *Store) Usage(ctx context.Context) (lease.Usage, error) {
	if err := ctx.Err(); err != nil {
		return lease.Usage{}, err
	}
	if s.stale() {
		if err := s.sync(ctx); err != nil {
			return lease.Usage{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.mirror.Usage(s.time.now())
	s.wake()
	return u, nil
}

func (s *Store) stale() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.loaded || s.err != nil || s.cfg.Clock.Since(s.contact) > staleAfter
}
