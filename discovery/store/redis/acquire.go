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

// attempts is how often Acquire chooses anew when others were faster. Each
// attempt knows all that made the one before it fail.
const attempts = 64

// Acquire chooses by the mirror, and grants in Redis.
func (s *Store) Acquire(ctx context.Context, req lease.Request) (lease.Lease, error) {
	if err := ctx.Err(); err != nil {
		return lease.Lease{}, err
	}
	fresh := false   // Redis has answered since the call began
	superseded := "" // the lease under the request's key that leads nowhere
	for range attempts {
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
			s.trust(c.replayed.ID)
			return *c.replayed, nil
		default:
			if err := s.sync(ctx); err != nil {
				return lease.Lease{}, err
			}
			fresh = true
		}
	}
	return lease.Lease{}, fmt.Errorf("%w: %d attempts in a row were overtaken by other clients", lease.ErrUnavailable, attempts)
}

// errOutdated: the choice was made by an old picture. There is a newer one now.
var errOutdated = errors.New("outdated choice")

var errGrantLost = fmt.Errorf("%w: Redis has lost what it granted just now", lease.ErrUnavailable)

// choice is what to ask Redis for, or what need not be asked for.
type choice struct {
	replayed   *lease.Lease
	wait       *tentative // under the same key
	record     ledger.Record
	max        int
	superseded string
	bound      lease.Instance
}

// choose has the chosen lease count in the mirror at once, so that the next
// client of this replica chooses another.
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
	s.pending[r.ID] = &tentative{done: make(chan struct{})}
	return choice{record: r, max: c.Offer.MaxLeases, superseded: c.Superseded, bound: c.Bound}, nil
}

// until waits for a tentative lease of somebody else to be granted or not.
func (t *tentative) until(ctx context.Context) error {
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// grant asks Redis for the chosen lease.
func (s *Store) grant(ctx context.Context, req lease.Request, c choice) (lease.Lease, error) {
	status, err := s.call(ctx, s.scripts.acquire, s.acquireArgs(req, c)...)
	if err == nil && status == statusOK && !s.confirmed(c.record.ID) {
		err = s.sync(ctx) // the mirror was loaded in between
		if err == nil && !s.confirmed(c.record.ID) {
			err = errGrantLost
		}
	}
	if err != nil {
		s.doubt(c.record)
		return lease.Lease{}, err
	}
	r, ok := s.settle(c.record.ID)
	switch {
	case status == statusOutdated:
		return lease.Lease{}, errOutdated
	case status == statusFull:
		return lease.Lease{}, s.limited(func() *lease.LimitError { return s.mirror.SessionLimitError(req.Holder) })
	case status == statusSettling:
		return lease.Lease{}, fmt.Errorf("%w: Redis has lost leases, and the replicas put back what they know of them", lease.ErrUnavailable)
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
		r.ID, instanceName(r.Instance), restOf(r), c.max, req.TTL.Microseconds(),
		pair(r.Instance.ProxyUID, ""), pair(r.Instance.ProxyUID, r.Target),
		ownedName(r.Holder, r.Key), c.superseded, ownedName(r.Holder, r.Session), bound,
		lease.SessionIdle.Microseconds(), s.cfg.Limits.Sessions,
	}
}

// ownedName is "" for no name.
func ownedName(holder, name string) string {
	if name == "" {
		return ""
	}
	return pair(holder, name)
}

// confirm notes that Redis has a lease that it was asked for. The caller holds mu.
func (s *Store) confirm(r ledger.Record) {
	if t := s.pending[r.ID]; t != nil && !placeholder(r) {
		t.confirmed, t.record = true, r
	}
}

func (s *Store) confirmed(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending[id].confirmed
}

// settle ends a tentative lease. The mirror keeps it if Redis granted it, and
// returns it as Redis did.
func (s *Store) settle(id string) (ledger.Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.time.now()
	t := s.pending[id]
	delete(s.pending, id)
	defer close(t.done)
	if !t.confirmed {
		s.mirror.Drop(now, id)
		s.wake()
		return ledger.Record{}, false
	}
	// It may be lost since, and nobody put it back: then nobody may be told of it.
	_, known := s.mirror.Find(now, id)
	return t.record, known
}

// doubt ends a tentative lease of which nobody knows whether Redis granted it.
// Nobody will use it, so it is given back when Redis answers again; but not
// what has a key: the client that asks for it again shall get it.
func (s *Store) doubt(r ledger.Record) {
	s.settle(r.ID)
	if r.Key != "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.doubtful) < maxDoubts {
		s.doubtful[r.ID] = struct{}{}
	}
}

// maxDoubts bounds what is remembered of a long outage. What is beyond it runs
// until it expires.
const maxDoubts = 10_000

// trust keeps a lease from being given back.
func (s *Store) trust(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.doubtful, id)
}

// settleDoubts gives back leases that nobody uses.
func (s *Store) settleDoubts(ctx context.Context) {
	s.mu.Lock()
	var ids []string
	for id := range s.doubtful {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	for _, id := range ids {
		if err := s.Release(ctx, id); err != nil {
			return
		}
		s.trust(id)
	}
}
