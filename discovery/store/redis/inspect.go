package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// How Redis is set up is read from INFO, which managed ones allow where they forbid
// CONFIG. What cannot be read is said, and refuses nothing.

// setup is what matters to leases about how a Redis is set up.
type setup struct {
	// unchecked says why nothing is known; nil when something is.
	unchecked error
	policy    string // maxmemory-policy, "" when not known
	limited   bool   // there is a maxmemory
	// appendOnly and fsync are "" when not known.
	appendOnly, fsync string
	server            string // its process, "" when not known
}

// pipeliner is a client or one connection of it.
type pipeliner interface {
	Pipelined(ctx context.Context, f func(goredis.Pipeliner) error) ([]goredis.Cmder, error)
}

// readSetup returns an error only when Redis does not answer.
func readSetup(ctx context.Context, c pipeliner) (setup, error) {
	var memory, persistence, server *goredis.StringCmd
	var fsync *goredis.MapStringStringCmd
	_, err := c.Pipelined(ctx, func(p goredis.Pipeliner) error {
		memory, persistence, server = p.Info(ctx, "memory"), p.Info(ctx, "persistence"), p.Info(ctx, "server")
		fsync = p.ConfigGet(ctx, "appendfsync")
		return nil
	})
	var refused goredis.Error
	if err != nil && !errors.As(err, &refused) {
		return setup{}, err
	}
	if err := memory.Err(); err != nil {
		return setup{unchecked: err}, nil
	}
	return setup{
		policy: field(memory.Val(), "maxmemory_policy"), limited: field(memory.Val(), "maxmemory") != "0",
		appendOnly: field(persistence.Val(), "aof_enabled"), fsync: fsync.Val()["appendfsync"],
		server: field(server.Val(), "run_id"),
	}, nil
}

// field finds a field of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && key == name {
			return value
		}
	}
	return ""
}

// refusal says why leases must not be kept in such a Redis, nil when they may. Our
// keys have no expiry, so that a volatile policy never picks them.
func (s setup) refusal() error {
	if !strings.HasPrefix(s.policy, "allkeys-") || !s.limited {
		return nil
	}
	return fmt.Errorf("its maxmemory-policy is %s: once its memory is full it drops leases that are held; set maxmemory-policy to noeviction, and it is used without a restart", s.policy)
}

// warnings say what else may be lost, and how.
func (s setup) warnings() []string {
	var out []string
	if s.unchecked != nil {
		out = append(out, fmt.Sprintf("it does not tell how it is set up (%v): see that maxmemory-policy is noeviction and appendonly is yes", s.unchecked))
	}
	if strings.HasPrefix(s.policy, "allkeys-") {
		out = append(out, fmt.Sprintf("its maxmemory-policy is %s: set noeviction before anybody sets maxmemory, or leases that are held are dropped", s.policy))
	}
	switch {
	case s.appendOnly == "0":
		out = append(out, "appendonly is off: when it restarts it forgets all since its last snapshot, and leases and cooldowns are back only as far as replicas of discovery that run then remember them")
	case s.fsync == "no":
		out = append(out, "appendfsync is no: when its machine dies it forgets what the system had not written yet, tens of seconds of grants")
	}
	return out
}

// inspect looks at how the Redis is set up that was connected to just now: it may be
// another one than before. It returns an error that unwraps to lease.ErrUnavailable when
// leases must not be kept there. Of one that is in use already a change is only told: it
// ends no service that runs.
func (s *Store) inspect(ctx context.Context, c pipeliner) error {
	found, err := readSetup(ctx, c)
	if err != nil {
		return err
	}
	s.inspection.Lock()
	defer s.inspection.Unlock()
	if s.inspected != nil && found.server == "" {
		found.server = s.inspected.server // one that is too busy to tell is not another
	}
	if s.inspected == nil || found.server != s.inspected.server {
		if err := found.refusal(); err != nil {
			return fmt.Errorf("%w: Redis at %s is not used: %w", lease.ErrUnavailable, s.cfg.Options.Addr, err)
		}
	}
	if s.inspected == nil || !found.same(*s.inspected) {
		s.warn(found)
	}
	s.inspected = &found
	return nil
}

// same reports whether there is nothing new to say. Why it tells nothing is none.
func (s setup) same(other setup) bool {
	silent := (s.unchecked != nil) == (other.unchecked != nil)
	s.unchecked, other.unchecked = nil, nil
	return silent && s == other
}

func (s *Store) warn(found setup) {
	for _, w := range found.warnings() {
		s.cfg.Log.Warn("Redis may lose leases", "why", w, "addr", s.client.Options().Addr)
	}
	if found.fsync == "everysec" && found.appendOnly == "1" {
		s.cfg.Log.Info("Redis writes its file once a second (appendfsync everysec): when its machine dies, a second of grants is back only as far as replicas of discovery remember them",
			"addr", s.client.Options().Addr)
	}
}
