package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// setup is the configuration of a Redis as far as it matters to leases. It comes from
// INFO, which managed services allow where they forbid CONFIG. What cannot be read is a
// warning, and no reason to refuse the Redis.
type setup struct {
	// unchecked is why nothing could be read, nil otherwise.
	unchecked error
	policy    string // maxmemory-policy, "" when unknown
	limited   bool   // maxmemory is set
	// appendOnly and fsync are "" when unknown.
	appendOnly, fsync string
	server            string // run_id of its process, "" when unknown
}

// pipeliner is a client or one connection of it.
type pipeliner interface {
	Pipelined(ctx context.Context, f func(goredis.Pipeliner) error) ([]goredis.Cmder, error)
}

// readSetup fails only when Redis does not answer.
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

// unusable returns why such a Redis cannot keep leases, nil when it can. Our keys have
// no expiry, so volatile policies never evict them.
func (s setup) unusable() error {
	if !strings.HasPrefix(s.policy, "allkeys-") || !s.limited {
		return nil
	}
	return fmt.Errorf("its maxmemory-policy is %s: once its memory is full it evicts leases that are held; set maxmemory-policy to noeviction, no restart is needed", s.policy)
}

// warnings list what else may be lost, and how.
func (s setup) warnings() []string {
	var out []string
	if s.unchecked != nil {
		out = append(out, fmt.Sprintf("its configuration cannot be read (%v): make sure that maxmemory-policy is noeviction and appendonly is yes", s.unchecked))
	}
	if strings.HasPrefix(s.policy, "allkeys-") {
		out = append(out, fmt.Sprintf("its maxmemory-policy is %s: set noeviction before maxmemory is set, or leases that are held are evicted", s.policy))
	}
	switch {
	case s.appendOnly == "0":
		out = append(out, "appendonly is off: a restart loses everything since its last snapshot, and only the leases and cooldowns that running replicas of discovery have cached are restored")
	case s.fsync == "no":
		out = append(out, "appendfsync is no: a crash of its machine loses tens of seconds of grants")
	}
	return out
}

// inspect checks the configuration of Redis at each new connection, which may be to
// another process than before. The error unwraps to lease.ErrUnavailable when that one
// cannot keep leases. A change of the configuration of one in use is only logged: it must
// not stop the service.
func (s *Store) inspect(ctx context.Context, c pipeliner) error {
	found, err := readSetup(ctx, c)
	if err != nil {
		return err
	}
	s.inspection.Lock()
	defer s.inspection.Unlock()
	if s.inspected != nil && found.server == "" {
		found.server = s.inspected.server // one that is too busy to answer is not another
	}
	if s.inspected == nil || found.server != s.inspected.server {
		if err := found.unusable(); err != nil {
			return fmt.Errorf("%w: Redis at %s is not used: %w", lease.ErrUnavailable, s.cfg.Options.Addr, err)
		}
	}
	if s.inspected == nil || !found.same(*s.inspected) {
		s.warn(found)
	}
	s.inspected = &found
	return nil
}

// same reports whether there is nothing new to log. The reason of unchecked is not.
func (s setup) same(other setup) bool {
	both := (s.unchecked != nil) == (other.unchecked != nil)
	s.unchecked, other.unchecked = nil, nil
	return both && s == other
}

func (s *Store) warn(found setup) {
	for _, w := range found.warnings() {
		s.cfg.Log.Warn("Redis may lose leases", "why", w, "addr", s.client.Options().Addr)
	}
	if found.fsync == "everysec" && found.appendOnly == "1" {
		s.cfg.Log.Info("Redis writes its file once a second (appendfsync everysec): a crash of its machine loses a second of grants, and only those that replicas of discovery have cached are restored",
			"addr", s.client.Options().Addr)
	}
}
