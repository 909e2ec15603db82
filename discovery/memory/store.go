// Package memory keeps leases and cooldowns in this process's memory. They are
// lost when it ends.
package memory

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// sweepInterval is how often Run drops what has ended. Every call does so too;
// the sweep only frees memory when no call comes.
const sweepInterval = time.Minute

// Store holds leases and cooldowns under one lock. All its methods may be used
// from many goroutines. Errors are context errors, *lease.NoMatchError and
// lease.ErrUnknown.
type Store struct {
	clock  clock.WithTicker
	window time.Duration

	mu      sync.Mutex
	leases  map[string]*held                      // running, and expired ones that still take reports
	running map[lease.Instance]map[*held]struct{} // those that count
	cooling map[string]map[string]*cooldown       // by Proxy UID, then target; "" cools for all
	due     deadlines                             // of every lease and cooldown above
	fence   uint64
}

// held is a lease and its place among the deadlines: its expiry while it runs,
// then the moment at which reports on it are no longer taken.
type held struct {
	lease.Lease
	deadline
	running bool
}

// cooldown ends at its deadline.
type cooldown struct {
	deadline
	proxyUID, target string
}

// New returns an empty store. A report that cools does so for window, and an
// expired lease takes reports for as long; 0 switches both off.
//
// Fencing tokens start at the clock's microseconds since 1970 and grow by one,
// so that they keep growing over a restart.
func New(clk clock.WithTicker, window time.Duration) *Store {
	return &Store{
		clock:   clk,
		window:  window,
		leases:  map[string]*held{},
		running: map[lease.Instance]map[*held]struct{}{},
		cooling: map[string]map[string]*cooldown{},
		fence:   uint64(max(0, clk.Now().UnixMicro())),
	}
}

// Run frees memory until ctx ends. Correctness does not depend on it.
func (s *Store) Run(ctx context.Context) error {
	ticker := s.clock.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			s.mu.Lock()
			s.advance(s.clock.Now())
			s.mu.Unlock()
		}
	}
}

// Acquire chooses the preferred candidate with room and no cooldown for the
// target, and grants a lease on it, in one step.
func (s *Store) Acquire(ctx context.Context, req lease.Request) (lease.Lease, error) {
	if err := ctx.Err(); err != nil {
		return lease.Lease{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	s.advance(now)
	best := s.choose(req)
	if best == nil {
		return lease.Lease{}, &lease.NoMatchError{Stats: s.explain(req)}
	}
	return s.grant(best, req, now), nil
}

func (s *Store) grant(c *lease.Candidate, req lease.Request, now time.Time) lease.Lease {
	s.fence++
	h := &held{running: true, Lease: lease.Lease{
		ID:           rand.Text(), // at least 128 bits, RFC 4648 base32
		Instance:     c.Instance,
		Proxy:        c.Proxy,
		Target:       req.Target,
		TTL:          req.TTL,
		ExpiresAt:    now.Add(req.TTL),
		FencingToken: s.fence,
	}}
	s.leases[h.ID] = h
	if s.running[c.Instance] == nil {
		s.running[c.Instance] = map[*held]struct{}{}
	}
	s.running[c.Instance][h] = struct{}{}
	s.due.add(&h.deadline, h, h.ExpiresAt)
	return h.Lease
}

// Release ends the lease with that id. An unknown id is not an error: the
// lease is over, as asked.
func (s *Store) Release(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(s.clock.Now())
	if h, ok := s.leases[id]; ok {
		s.due.remove(&h.deadline)
		s.stop(h)
		delete(s.leases, id)
	}
	return nil
}

// Report starts a cooldown if the result calls for one. It takes reports on
// leases that have expired, for as long as the cooldown window: a late report
// tends to come just when the proxy is in trouble. A released lease is
// unknown.
func (s *Store) Report(ctx context.Context, id string, rep lease.Report) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	s.advance(now)
	h, ok := s.leases[id]
	if !ok {
		return lease.ErrUnknown
	}
	if rep.Result.Cools() && s.window > 0 {
		target := rep.Target
		if target == "" {
			target = h.Target
		}
		s.cool(h.Instance.ProxyUID, target, now.Add(s.window))
	}
	return nil
}

// Usage counts running leases and lists the cooldowns for all targets.
func (s *Store) Usage(ctx context.Context) (lease.Usage, error) {
	if err := ctx.Err(); err != nil {
		return lease.Usage{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(s.clock.Now())
	u := lease.Usage{Active: make(map[lease.Instance]int, len(s.running)), CoolingUntil: map[string]time.Time{}}
	for instance, leases := range s.running {
		u.Active[instance] = len(leases)
	}
	for uid, targets := range s.cooling {
		if c := targets[""]; c != nil {
			u.CoolingUntil[uid] = c.at
		}
	}
	return u, nil
}
