package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/ledger"
)

// cached is Get on the mirror as it is.
func (s *Store) cached(id string) (lease.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mirror.Get(s.time.now(), id)
}

// Renew extends a lease.
func (s *Store) Renew(ctx context.Context, id string, ttl time.Duration) (lease.Lease, error) {
	if err := ctx.Err(); err != nil {
		return lease.Lease{}, err
	}
	if _, err := s.cached(id); err != nil { // the mirror may be stale
		if _, err := s.Get(ctx, id); err != nil {
			return lease.Lease{}, err
		}
	}
	r, ok := s.find(id)
	switch {
	case !ok:
		return lease.Lease{}, lease.ErrUnknown
	case !r.ExpiresAt.After(s.now()): // since the check
		return lease.Lease{}, &lease.EndedError{Reason: lease.EndExpired, Lease: r.Lease}
	}
	status, err := s.callOnLease(ctx, id, s.scripts.renew, id, ttl.Microseconds(),
		lease.SessionIdle.Microseconds(),
		scopedName(r.Holder, r.Key), scopedName(r.Holder, r.Session))
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
	return s.cached(id)
}

// now is the estimated time of Redis.
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

// Release ends a lease. It is idempotent: an unknown id is no error.
func (s *Store) Release(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := s.callOnLease(ctx, id, s.scripts.release, id, lease.SessionIdle.Microseconds())
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
	status, err := s.callOnLease(ctx, id, s.scripts.report, id, pair(r.Instance.ProxyUID, target), length.Microseconds(),
		s.cfg.Limits.TargetsPerProxy, s.cfg.Limits.Targets)
	switch {
	case err != nil:
		return err
	case status == statusUnknown:
		return lease.ErrUnknown
	case status == statusFull:
		return s.limitError(func() *lease.LimitError { return s.mirror.TargetLimitError(r.Instance.ProxyUID) })
	case status != statusOK:
		return fmt.Errorf("%w: Redis answered %q", lease.ErrUnavailable, status)
	}
	return nil
}

// limitError describes, by the mirror, the limit that Redis enforced.
func (s *Store) limitError(what func() *lease.LimitError) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mirror.Advance(s.time.now())
	return what()
}

// Usage counts running leases and lists the cooldowns for all targets. It may be
// stale by a second.
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
	s.NotifyChanged(s.mirror)
	return u, nil
}

func (s *Store) stale() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.loaded || s.err != nil || s.cfg.Clock.Since(s.lastAnswer) > staleAfter
}

// List returns one page of the running leases, as Redis has them.
func (s *Store) List(ctx context.Context, q lease.Query) (page lease.Page, err error) {
	err = s.do(ctx, false, func(g *ledger.Ledger, now time.Time) error {
		page = g.List(now, q)
		page.Leases = slices.DeleteFunc(page.Leases, func(l lease.Lease) bool {
			p := s.pending[l.ID]
			return p != nil && !p.confirmed
		})
		return nil
	})
	return page, err
}

// endedPerCall is how many cooldowns one call of the script ends: Redis serves no
// other client meanwhile.
const endedPerCall = 500

// EndCooldowns ends cooldowns of a Proxy early.
func (s *Store) EndCooldowns(ctx context.Context, proxyUID, target string) (ended int, err error) {
	all, err := s.Cooldowns(ctx, proxyUID)
	if err != nil {
		return 0, err
	}
	var names []any
	for _, c := range all {
		if target == "" || c.Target == target {
			names = append(names, pair(proxyUID, c.Target))
		}
	}
	for some := range slices.Chunk(names, endedPerCall) {
		status, err := s.call(ctx, s.scripts.end, some...)
		if err != nil {
			return ended, err
		}
		n, err := strconv.Atoi(status)
		if err != nil {
			return ended, fmt.Errorf("%w: Redis answered %q", lease.ErrUnavailable, status)
		}
		ended += n
	}
	return ended, nil
}
