package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// changesPerAnswer is how many changes an answer has at most.
const changesPerAnswer = 1000

var errNotConnected = fmt.Errorf("%w: Redis was not reached yet", lease.ErrUnavailable)

// call runs a script, and applies the changes of its answer to the mirror.
func (s *Store) call(ctx context.Context, script *goredis.Script, args ...any) (string, error) {
	if err := s.ensureLoaded(ctx); err != nil {
		return "", err
	}
	reply, err := s.eval(ctx, script, args...).Slice()
	if isCorrupt(err) {
		s.cfg.Log.Error("data in Redis is corrupt and is repaired", "err", err)
		if err = s.eval(ctx, s.scripts.fix).Err(); err == nil {
			reply, err = s.eval(ctx, script, args...).Slice()
		}
	}
	if err != nil {
		return "", s.failed(ctx, err)
	}
	a, err := parseAnswer(reply)
	if err != nil {
		return "", s.failed(ctx, err)
	}
	s.applyAnswer(a)
	return a.status, nil
}

// eval runs a script with the arguments that all scripts take.
func (s *Store) eval(ctx context.Context, script *goredis.Script, args ...any) *goredis.Cmd {
	s.mu.Lock()
	head := []any{s.time.argument(), s.last, s.nonce, rand.Text(), s.generation, s.cfg.Cooldown.Microseconds(), s.cfg.Limits.Expired}
	s.mu.Unlock()
	return script.Run(ctx, s.client, []string{s.key}, append(head, args...)...)
}

// isCorrupt reports whether a script failed on a key or a value of the wrong type.
// Other errors of Redis have other codes: READONLY, OOM, NOREPLICAS and so on. A command
// that is missing or forbidden to our user has ERR, too, and is no fault of the data.
func isCorrupt(err error) bool {
	var reply goredis.Error
	return errors.As(err, &reply) && strings.Contains(err.Error(), "user_script") &&
		(strings.HasPrefix(err.Error(), "WRONGTYPE ") || strings.HasPrefix(err.Error(), "ERR ")) && !isForbidden(err)
}

// isForbidden reports whether a command of a script may not be run. Versions of Redis
// word it in different ways.
func isForbidden(err error) bool {
	return slices.ContainsFunc([]string{"can't run this command", "ACL failure", "No permission", "nknown Redis command"},
		func(words string) bool { return strings.Contains(err.Error(), words) })
}

// callOnLease calls a script about one lease. When Redis does not have a lease that
// runs in the mirror, it is restored and the call is retried, so that no client gets
// "unknown" for a lease that this replica has. Redis may drop an expired lease a
// moment before the mirror does.
func (s *Store) callOnLease(ctx context.Context, id string, script *goredis.Script, args ...any) (string, error) {
	for range maxReloads {
		status, err := s.call(ctx, script, args...)
		if r, known := s.find(id); err != nil || status != statusUnknown || !known || !r.ExpiresAt.After(s.now()) {
			return status, err
		}
		if s.isLoaded() { // the loss was not detected yet
			if err := s.eval(ctx, s.scripts.fix).Err(); err != nil {
				return "", s.failed(ctx, err)
			}
		}
		if err := s.sync(ctx); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%w: Redis loses the lease each time that it is restored", lease.ErrUnavailable)
}

// maxReloads bounds the reloads in a row after which the mirror is still stale.
const maxReloads = 8

var errInconsistent = errors.New("its log of changes does not lead to its data")

// sync brings the mirror up to the state of Redis at some moment after the call.
func (s *Store) sync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for reloads := 0; reloads < maxReloads; {
		s.mu.Lock()
		before := s.last
		s.mu.Unlock()
		if _, err := s.call(ctx, s.scripts.sync); err != nil {
			return err
		}
		s.mu.Lock()
		loaded, done := s.loaded, s.loaded && s.last-before < changesPerAnswer
		s.mu.Unlock()
		if done {
			return nil
		}
		if !loaded {
			reloads++
		}
	}
	return s.failed(ctx, errInconsistent)
}

// failed records that a call failed, unless its context ended: that is no sign of an
// outage of Redis.
func (s *Store) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	if !errors.Is(err, lease.ErrUnavailable) {
		if isForbidden(err) {
			err = fmt.Errorf("%w; grant its user all commands on the keys %s*", err, s.key)
		}
		err = fmt.Errorf("%w: Redis: %w", lease.ErrUnavailable, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	return err
}

// wentBack is how far an answer's time must be behind the latest one to mean that the
// clock of Redis was set back, as by a failover to another machine. Answers that
// overtake each other differ by less: see callTimeout.
const wentBack = 10 * time.Second

// timekeeper estimates the clock of Redis from its answers. Its time does not go
// back, as ledgers require, unless the clock of Redis did: then the mirror is loaded
// again.
type timekeeper struct {
	clock  clock.Clock
	local  bool
	offset time.Duration // of Redis's clock to this one
	latest time.Time
}

// now is at most one round trip behind Redis.
func (t *timekeeper) now() time.Time {
	if now := t.clock.Now().Add(t.offset); now.After(t.latest) {
		t.latest = now
	}
	return t.latest
}

// observe takes the time from an answer. It reports whether Redis's clock went back,
// so that what had expired has not.
func (t *timekeeper) observe(server time.Time) (back bool) {
	if t.local {
		return false
	}
	t.offset = server.Sub(t.clock.Now())
	if t.latest.Sub(server) <= wentBack {
		return false
	}
	t.latest = server
	return true
}

// argument of the scripts for the time; 0 is Redis's own clock.
func (t *timekeeper) argument() int64 {
	if t.local {
		return t.clock.Now().UnixMicro()
	}
	return 0
}
