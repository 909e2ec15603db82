package redis

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
)

// atOnce is how many entries one call puts back.
const atOnce = 500

// putBack gives Redis back what the mirror knows and Redis has lost: by FLUSHALL, in
// a failover to a replica that was behind, by the loss of a key. Each replica does
// so, and nothing is granted before each had the time to. A lease that was released
// meanwhile may come back for the rest of its time; none that is held is forgotten.
//
// It returns the generation that has all of it, "" when a part may be lost again.
func (s *Store) putBack(ctx context.Context) (generation string, err error) {
	s.mu.Lock()
	s.losses++
	entries, fence := s.remembered(), s.mirror.Fence()
	s.mu.Unlock()
	var back int64
	seen := map[string]bool{}
	for first := true; first || len(entries) > 0; first = false {
		n := min(len(entries), 3*atOnce)
		reply, err := s.eval(ctx, s.scripts.restore, append([]any{fence}, entries[:n]...)...).Slice()
		if err != nil {
			return "", err
		}
		entries = entries[n:]
		if len(reply) == 2 {
			put, _ := reply[0].(int64)
			back, generation = back+put, text(reply[1])
			seen[generation] = true
		}
	}
	if err := s.inspect(ctx, s.client); err != nil {
		return "", err
	}
	s.cfg.Log.Error("Redis has lost keys or a part of its past; what this replica knows is put back",
		"addr", s.client.Options().Addr, "leasesLost", back)
	if len(seen) > 1 {
		return "", nil
	}
	return generation, nil
}

// remembered lists what the mirror knows that is not over, as restore.lua takes it.
// What Redis was not heard to have granted yet is left out. The caller holds mu.
func (s *Store) remembered() []any {
	now := s.time.now()
	s.mirror.Advance(now)
	state := s.mirror.State()
	var out []any
	for _, r := range state.Leases {
		if t := s.pending[r.ID]; r.ExpiresAt.After(now) && (t == nil || t.confirmed) {
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

// Losses counts how often this replica found that Redis had lost keys or a part of
// its past.
func (s *Store) Losses() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.losses
}

// Collector tells how often that was, for operators to look at how Redis is set up.
func (s *Store) Collector() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "proxy_operator_lease_store_losses_total",
		Help: "Times that Redis was found to have lost keys or a part of its past, and this replica put back what it knew. Only with --lease-store on Redis.",
	}, func() float64 { return float64(s.Losses()) })
}
