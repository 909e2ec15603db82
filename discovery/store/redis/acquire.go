package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/ledger"
)

// maxAttempts is how often Acquire retries after other clients were faster. Each
// attempt sees all that made the one before it fail.
const maxAttempts = 64

// Acquire chooses a proxy by the mirror, and grants the lease in Redis.
func (s *Store) Acquire(ctx context.Context, req lease.Request) (lease.Lease, error) {
	if err := ctx.Err(); err != nil {
		return lease.Lease{}, err
	}
	fresh := false   // Redis has answered since the call began
	superseded := "" // the lease under the request's key whose instance is gone
	for range maxAttempts {
		if err := s.ensureLoaded(ctx); err != nil {
			return lease.Lease{}, err
		}
		c, err := s.choose(req)
		switch {
		case c.wait != nil:
			if err := c.wait.until(ctx); err != nil {
				return lease.Lease{}, err
			}
		case err == nil && c.replayed == nil:
			superseded = cmp.Or(c.superseded, superseded)
			c.superseded = superseded
			l, err := s.grant(ctx, req, c)
			if !errors.Is(err, errOutdated) {
				return l, err
			}
			fresh = true
		case fresh && err != nil:
			return lease.Lease{}, err
		case fresh:
			s.markUsed(c.replayed.ID)
			return *c.replayed, nil
		default:
			if err := s.sync(ctx); err != nil {
				return lease.Lease{}, err
			}
			fresh = true
		}
	}
	return lease.Lease{}, fmt.Errorf("%w: other clients were faster %d times in a row", lease.ErrUnavailable, maxAttempts)
}

// errOutdated: the choice was based on a stale mirror, which is up to date now.
var errOutdated = errors.New("outdated choice")

var errGrantLost = fmt.Errorf("%w: Redis lost the lease that it just granted", lease.ErrUnavailable)

// choice is the lease to request from Redis, or one that needs no request.
type choice struct {
	replayed   *lease.Lease
	wait       *pendingGrant // under the same key
	record     ledger.Record
	max        int
	superseded string
	bound      lease.Instance
}

// choose puts the chosen lease into the mirror at once, so that the next client of
// this replica chooses another proxy.
func (s *Store) choose(req lease.Request) (choice, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.time.now()
	c, err := s.mirror.Choose(now, req)
	if err != nil {
		return choice{}, err
	}
	if c.Replayed != nil {
		return choice{replayed: c.Replayed, wait: s.pending[c.Replayed.ID]}, nil
	}
	r := ledger.Record{Key: req.Key, Fingerprint: req.Fingerprint, Lease: lease.Lease{
		ID:       rand.Text(), // at least 128 bits, RFC 4648 base32
		Instance: c.Offer.Instance, Proxy: c.Offer.Proxy,
		Holder: req.Holder, Session: req.Session, Target: req.Target,
		TTL: req.TTL, GrantedAt: now, ExpiresAt: now.Add(req.TTL), FencingToken: s.mirror.Fence() + 1,
	}}
	s.mirror.Put(now, r)
	s.pending[r.ID] = &pendingGrant{done: make(chan struct{})}
	return choice{record: r, max: c.Offer.MaxLeases, superseded: c.Superseded, bound: c.Bound}, nil
}

// grant requests the chosen lease from Redis.
func (s *Store) grant(ctx context.Context, req lease.Request, c choice) (lease.Lease, error) {
	status, err := s.call(ctx, s.scripts.acquire, s.acquireArgs(req, c)...)
	if err == nil && status == statusOK && !s.confirmed(c.record.ID) {
		err = s.sync(ctx) // the mirror was loaded in between
		if err == nil && !s.confirmed(c.record.ID) {
			err = errGrantLost
		}
	}
	if err != nil {
		s.abandon(c.record)
		return lease.Lease{}, err
	}
	r, ok := s.finish(c.record.ID)
	switch {
	case status == statusOutdated:
		return lease.Lease{}, errOutdated
	case status == statusFull:
		return lease.Lease{}, s.limitError(func() *lease.LimitError { return s.mirror.SessionLimitError(req.Holder) })
	case status == statusRecovering:
		return lease.Lease{}, fmt.Errorf("%w: Redis lost leases, and the replicas restore them", lease.ErrUnavailable)
	case status == statusOK && !ok:
		return lease.Lease{}, errGrantLost
	case status != statusOK:
		return lease.Lease{}, fmt.Errorf("%w: Redis answered %q", lease.ErrUnavailable, status)
	}
	return r.Lease, nil
}

func (s *Store) acquireArgs(req lease.Request, c choice) []any {
	r := c.record
	bound := ""
	if c.bound != (lease.Instance{}) {
		bound = instanceName(c.bound)
	}
	return []any{
		r.ID, instanceName(r.Instance), formatRest(r), c.max, req.TTL.Microseconds(),
		pair(r.Instance.ProxyUID, ""), pair(r.Instance.ProxyUID, r.Target),
		scopedName(r.Holder, r.Key), c.superseded, scopedName(r.Holder, r.Session), bound,
		lease.SessionIdle.Microseconds(), s.cfg.Limits.Sessions,
	}
}

// scopedName is "" for no name.
func scopedName(holder, name string) string {
	if name == "" {
		return ""
	}
	return pair(holder, name)
}

// pendingGrant is a lease that is in the mirror while Redis is asked for it.
type pendingGrant struct {
	done      chan struct{}
	confirmed bool
	record    ledger.Record // as Redis granted it, once confirmed
}

// until waits until the grant has succeeded or failed.
func (g *pendingGrant) until(ctx context.Context) error {
	select {
	case <-g.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// confirm notes that Redis has a pending lease. The caller holds mu.
func (s *Store) confirm(r ledger.Record) {
	if g := s.pending[r.ID]; g != nil && !isPlaceholder(r) {
		g.confirmed, g.record = true, r
	}
}

func (s *Store) confirmed(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending[id].confirmed
}

// finish ends a pending grant. It returns the lease as Redis granted it, and drops
// the lease from the mirror if Redis did not.
func (s *Store) finish(id string) (ledger.Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.time.now()
	g := s.pending[id]
	delete(s.pending, id)
	defer close(g.done)
	if !g.confirmed {
		s.mirror.Drop(now, id)
		s.NotifyChanged(s.mirror)
		return ledger.Record{}, false
	}
	// Redis may have lost it since, and then no client may get it.
	_, known := s.mirror.Find(now, id)
	return g.record, known
}

// maxUnused bounds the leases to release after a long outage. The rest expire.
const maxUnused = 10_000

// abandon ends a pending grant with an unknown result. No client has the lease, so
// it is released when Redis answers again. A lease with a key stays: the client
// gets it when it retries.
func (s *Store) abandon(r ledger.Record) {
	s.finish(r.ID)
	if r.Key != "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unused) < maxUnused {
		s.unused[r.ID] = struct{}{}
	}
}

// markUsed keeps a lease from being released by releaseUnused.
func (s *Store) markUsed(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unused, id)
}

// releaseUnused releases abandoned leases.
func (s *Store) releaseUnused(ctx context.Context) {
	s.mu.Lock()
	var ids []string
	for id := range s.unused {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	for _, id := range ids {
		if err := s.Release(ctx, id); err != nil {
			return
		}
		s.markUsed(id)
	}
}
