package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// changesAtOnce is how many changes the scripts tell in one answer.
const changesAtOnce = 1000

var errNeverReached = fmt.Errorf("%w: Redis was not reached yet", lease.ErrUnavailable)

// call runs a script, and brings the mirror up to date with its answer.
func (s *Store) call(ctx context.Context, script *goredis.Script, args ...any) (string, error) {
	if err := s.ensureLoaded(ctx); err != nil {
		return "", err
	}
	reply, err := s.eval(ctx, script, args...).Slice()
	if isSpoilt(err) {
		s.cfg.Log.Error("what Redis holds is spoilt and is mended", "err", err)
		if err = s.eval(ctx, s.scripts.mended).Err(); err == nil {
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
	s.absorb(a)
	return a.status, nil
}

// eval runs a script with what all of them are told.
func (s *Store) eval(ctx context.Context, script *goredis.Script, args ...any) *goredis.Cmd {
	s.mu.Lock()
	head := []any{s.time.argument(), s.last, s.nonce, rand.Text(), s.generation, s.cfg.Cooldown.Microseconds(), s.cfg.Limits.Expired}
	s.mu.Unlock()
	return script.Run(ctx, s.client, []string{s.key}, append(head, args...)...)
}

// isSpoilt reports whether a script ran into a key or a value of ours that is none.
// Other errors of Redis have other codes: READONLY, OOM, NOREPLICAS and so on.
func isSpoilt(err error) bool {
	var reply goredis.Error
	return errors.As(err, &reply) && strings.Contains(err.Error(), "user_script") &&
		(strings.HasPrefix(err.Error(), "WRONGTYPE ") || strings.HasPrefix(err.Error(), "ERR "))
}

// about makes a call about one lease. When Redis does not know one that runs as far
// as the mirror knows, what it knew is put back first, and again when that gets lost
// meanwhile: whom this replica remembers is never told that the lease is unknown. Of
// those that have expired Redis may have forgotten one a moment before the mirror
// does.
func (s *Store) about(ctx context.Context, id string, script *goredis.Script, args ...any) (string, error) {
	for range maxReloads {
		status, err := s.call(ctx, script, args...)
		if r, known := s.find(id); err != nil || status != statusUnknown || !known || !r.ExpiresAt.After(s.now()) {
			return status, err
		}
		if s.isLoaded() { // nobody has noticed yet
			if err := s.eval(ctx, s.scripts.mended).Err(); err != nil {
				return "", s.failed(ctx, err)
			}
		}
		if err := s.sync(ctx); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%w: Redis loses the lease as often as it is put back", lease.ErrUnavailable)
}

// maxReloads is after how many reloads in a row that bring nothing to follow a
// replica says that Redis cannot be followed, rather than ask for ever.
const maxReloads = 8

var errNotFollowed = errors.New("what it tells of its changes does not follow from what it holds")

// sync brings the mirror up to what Redis holds at some moment after the call.
func (s *Store) sync(ctx context.Context) error {
	for reloads := 0; reloads < maxReloads; {
		s.mu.Lock()
		before := s.last
		s.mu.Unlock()
		if _, err := s.call(ctx, s.scripts.sync); err != nil {
			return err
		}
		s.mu.Lock()
		loaded, done := s.loaded, s.loaded && s.last-before < changesAtOnce
		s.mu.Unlock()
		if done {
			return nil
		}
		if !loaded {
			reloads++
		}
	}
	return s.failed(ctx, errNotFollowed)
}

// failed notes that a call was not answered. Whose context ended says nothing
// about Redis.
func (s *Store) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	if !errors.Is(err, lease.ErrUnavailable) {
		err = fmt.Errorf("%w: Redis: %w", lease.ErrUnavailable, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	return err
}
