package redis

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
)

// restoredPerCall is how many entries one call restores.
const restoredPerCall = 500

// restore writes to Redis what the mirror has and Redis lost: by FLUSHALL, by a failover
// to a replica that was behind, or by the loss of a key. Each replica of discovery does
// so, and nothing is granted before each had the time to. A lease that was released
// meanwhile may come back until it expires; none that is held is lost.
//
// It returns the generation that has all of it, "" when Redis lost a part again.
func (s *Store) restore(ctx context.Context) (generation string, err error) {
	s.mu.Lock()
	s.losses++
	entries, fence := s.snapshot(), s.mirror.Fence()
	s.mu.Unlock()
	var restored int64
	seen := map[string]bool{}
	for first := true; first || len(entries) > 0; first = false {
		n := min(len(entries), 3*restoredPerCall)
		reply, err := s.eval(ctx, s.scripts.restore, append([]any{fence}, entries[:n]...)...).Slice()
		if err != nil {
			return "", err
		}
		entries = entries[n:]
		if len(reply) == 2 {
			put, _ := reply[0].(int64)
			restored, generation = restored+put, text(reply[1])
			seen[generation] = true
		}
	}
	if err := s.inspect(ctx, s.client); err != nil {
		return "", err
	}
	s.cfg.Log.Error("Redis lost keys or changes; this replica restores what its cache has",
		"addr", s.client.Options().Addr, "leasesLost", restored)
	if len(seen) > 1 {
		return "", nil
	}
	return generation, nil
}

// snapshot lists what the mirror has and has not expired, as arguments of restore.lua,
// without grants that Redis has not confirmed. The caller holds mu.
func (s *Store) snapshot() []any {
	now := s.time.now()
	s.mirror.Advance(now)
	state := s.mirror.State()
	var out []any
	for _, r := range state.Leases {
		if g := s.pending[r.ID]; r.ExpiresAt.After(now) && (g == nil || g.confirmed) {
			out = append(out, "L", r.ID, formatRecord(r))
		}
	}
	for _, x := range state.Sessions {
		out = append(out, "S", pair(x.Holder, x.Name), formatUntil(x.Until, instanceName(x.Instance)))
	}
	for _, c := range state.Cooldowns {
		out = append(out, "C", pair(c.ProxyUID, c.Target), formatUntil(c.Until, ""))
	}
	return out
}

// Losses is how often this replica detected that Redis lost keys or changes.
func (s *Store) Losses() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.losses
}

// Collector is the metric of Losses, which point to a Redis that is not durable.
func (s *Store) Collector() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "proxy_operator_lease_store_losses_total",
		Help: "Times that Redis lost keys or changes, and this replica restored what it had cached. Only with --lease-store on Redis.",
	}, func() float64 { return float64(s.Losses()) })
}
