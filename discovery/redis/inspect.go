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
}

// readSetup returns an error only when Redis does not answer.
func readSetup(ctx context.Context, c *goredis.Client) (setup, error) {
	info, err := c.Info(ctx, "memory").Result()
	var refused goredis.Error
	switch {
	case errors.As(err, &refused):
		return setup{unchecked: err}, nil
	case err != nil:
		return setup{}, err
	}
	s := setup{policy: field(info, "maxmemory_policy"), limited: field(info, "maxmemory") != "0"}
	if info, err = c.Info(ctx, "persistence").Result(); err == nil {
		s.appendOnly = field(info, "aof_enabled")
	}
	if got, err := c.ConfigGet(ctx, "appendfsync").Result(); err == nil {
		s.fsync = got["appendfsync"]
	}
	return s, nil
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

// inspect looks at how Redis is set up, before anything is kept there. It returns
// an error that unwraps to lease.ErrUnavailable when leases must not be.
func (s *Store) inspect(ctx context.Context) error {
	found, err := readSetup(ctx, s.client)
	if err != nil {
		return err
	}
	if err := found.refusal(); err != nil {
		return fmt.Errorf("%w: Redis at %s is not used: %w", lease.ErrUnavailable, s.client.Options().Addr, err)
	}
	s.warn(found)
	return nil
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
