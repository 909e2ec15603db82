package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// List returns a part of the leases that run, as Redis has them.
func (s *Store) List(ctx context.Context, q lease.Query) (lease.Page, error) {
	if err := s.refresh(ctx); err != nil {
		return lease.Page{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	page := s.mirror.List(s.time.now(), q)
	page.Leases = slices.DeleteFunc(page.Leases, func(l lease.Lease) bool {
		t := s.pending[l.ID]
		return t != nil && !t.confirmed
	})
	return page, nil
}

// Cooldowns lists those of a Proxy, as Redis has them.
func (s *Store) Cooldowns(ctx context.Context, proxyUID string) ([]lease.Cooldown, error) {
	if err := s.refresh(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mirror.Cooldowns(s.time.now(), proxyUID), nil
}

// refresh brings the mirror up to what Redis holds now.
func (s *Store) refresh(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.sync(ctx)
}

// endedAtOnce is how many cooldowns one call of the script ends, which nobody
// else is answered during.
const endedAtOnce = 500

// EndCooldowns ends cooldowns of a Proxy before their time.
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
	for some := range slices.Chunk(names, endedAtOnce) {
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
