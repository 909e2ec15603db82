package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// changesAtOnce is how many changes the scripts tell in one answer.
const changesAtOnce = 1000

// What scripts answer.
const (
	statusOK       = "ok"
	statusOutdated = "outdated"
	statusUnknown  = "unknown"
	statusExpired  = "expired"
	statusSettling = "settling"
	statusFull     = "full"
)

var errNeverReached = fmt.Errorf("%w: Redis was not reached yet", lease.ErrUnavailable)

// What scripts answer about what the caller knew before.
const (
	historyGoesOn = "changes" // all that came since is told
	historyLost   = "lost"    // it is of a past that Redis knows nothing of
)

// answer is what every script but load and restore returns.
type answer struct {
	status  string
	now     time.Time
	reload  bool // the mirror cannot be brought up to date by changes alone
	changes []change
}

// change is one entry of the log.
type change struct {
	rev                             int64
	nonce, op, name, value, session string
}

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
	head := []any{s.time.argument(), s.last, s.nonce, rand.Text(), s.generation, s.cfg.Window.Microseconds()}
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

// about makes a call about one lease. When Redis does not know one that the mirror
// knows, what it knew is put back first.
func (s *Store) about(ctx context.Context, id string, script *goredis.Script, args ...any) (string, error) {
	status, err := s.call(ctx, script, args...)
	if _, known := s.find(id); err != nil || status != statusUnknown || !known {
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
	return s.call(ctx, script, args...)
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

// absorb applies an answer's changes to the mirror, in order and each once.
func (s *Store) absorb(a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if back := s.time.observe(a.now); back {
		s.loaded = false
	}
	s.contact, s.err = s.cfg.Clock.Now(), nil
	s.follows(a.changes)
	if a.reload {
		s.loaded = false
	}
	s.wake()
}

// follows applies changes until there is a gap, or something that nobody of us
// wrote. The caller holds mu.
func (s *Store) follows(changes []change) {
	for _, c := range changes {
		if !s.loaded || c.rev <= s.last {
			continue
		}
		if c.rev != s.last+1 || s.apply(c) != nil {
			s.loaded = false
			return
		}
		s.last, s.nonce = c.rev, c.nonce
	}
}

// apply makes the mirror follow one change.
func (s *Store) apply(c change) error {
	now := s.time.now()
	switch c.op {
	case "L":
		r, err := parseRecord(c.name, c.value)
		if err != nil {
			return err
		}
		if c.session != "" {
			if err := s.applySession(pair(r.Holder, r.Session), c.session); err != nil {
				return err
			}
		}
		s.mirror.Put(now, r)
		if t := s.pending[c.name]; t != nil {
			t.confirmed = true
		}
	case "R":
		s.mirror.Drop(now, c.name)
		s.freed.Broadcast()
		if c.session != "" {
			return s.applySession(c.value, c.session)
		}
	case "C":
		x, err := parseCooldown(c.name, c.value)
		if err != nil {
			return err
		}
		s.mirror.PutCooldown(now, x)
	case "E":
		return s.applyEnd(c.name)
	default:
		return fmt.Errorf("unknown change %q", c.op)
	}
	return nil
}

func (s *Store) applyEnd(cooldowns string) error {
	names, err := parseNames(cooldowns)
	if err != nil {
		return err
	}
	for _, name := range names {
		uid, target, err := unpair(name)
		if err != nil {
			return err
		}
		s.mirror.EndCooldown(s.time.now(), uid, target)
	}
	s.freed.Broadcast()
	return nil
}

func (s *Store) applySession(name, value string) error {
	x, err := parseSession(name, value)
	if err != nil {
		return err
	}
	s.mirror.PutSession(s.time.now(), x)
	return nil
}

func parseAnswer(reply []any) (answer, error) {
	if len(reply) < 3 {
		return answer{}, fmt.Errorf("script answered %d values", len(reply))
	}
	now, err := strconv.ParseInt(text(reply[1]), 10, 64)
	if err != nil {
		return answer{}, fmt.Errorf("script answered the time %q", text(reply[1]))
	}
	a := answer{status: text(reply[0]), now: at(now), reload: text(reply[2]) != historyGoesOn}
	if len(reply) < 4 {
		return a, nil
	}
	entries, _ := reply[3].([]any)
	for _, entry := range entries {
		c, err := parseChange(entry)
		if err != nil {
			return answer{}, err
		}
		a.changes = append(a.changes, c)
	}
	return a, nil
}

// parseChange reads an entry of the log: its id is 'revision-1', its fields are
// n NONCE, OP NAME, VALUE SESSION.
func parseChange(entry any) (change, error) {
	parts, _ := entry.([]any)
	if len(parts) != 2 {
		return change{}, errors.New("the log has an entry without fields")
	}
	fields, _ := parts[1].([]any)
	id, _, _ := strings.Cut(text(parts[0]), "-")
	rev, err := strconv.ParseInt(id, 10, 64)
	if err != nil || len(fields) != 6 {
		return change{}, fmt.Errorf("the log has an entry %q with %d fields", text(parts[0]), len(fields))
	}
	return change{
		rev: rev, nonce: text(fields[1]), op: text(fields[2]), name: text(fields[3]),
		value: text(fields[4]), session: text(fields[5]),
	}, nil
}

// text is a reply that should be a string, "" when it is none.
func text(v any) string {
	s, _ := v.(string)
	return s
}
