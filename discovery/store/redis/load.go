package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/ledger"
)

// contents is all that Redis holds.
type contents struct {
	now        time.Time
	rev        int64
	nonce      string
	generation string
	history    string // how what this replica knew lies to it
	spoilt     []any  // entries that are none, as mended.lua takes them
	state      ledger.State
}

// ensureLoaded fills the mirror when it is not what Redis held at some moment:
// at first, and after changes that cannot be told one by one any more. When Redis
// has lost what the mirror knows, that is put back before.
func (s *Store) ensureLoaded(ctx context.Context) error {
	if s.isLoaded() {
		return nil
	}
	s.loading.Lock()
	defer s.loading.Unlock()
	if s.isLoaded() {
		return nil
	}
	all, err := s.loadAll(ctx)
	if err != nil {
		return s.failed(ctx, err)
	}
	s.fill(all)
	return nil
}

// loadAll loads until what is there has all that the mirror knows, too: it may get
// lost again while it is put back.
func (s *Store) loadAll(ctx context.Context) (contents, error) {
	has := "" // the generation that all was put back to
	for range maxReloads {
		all, err := s.load(ctx)
		switch {
		case err != nil:
			return contents{}, err
		case all.history != historyLost || all.generation == has:
			return all, nil
		}
		if has, err = s.putBack(ctx); err != nil {
			return contents{}, err
		}
	}
	return contents{}, errNotFollowed
}

// load reads everything once more when some of it was spoilt, and is mended: what
// cannot be read is gone then.
func (s *Store) load(ctx context.Context) (contents, error) {
	all, err := s.loadOnce(ctx)
	if err == nil && len(all.spoilt) == 0 || err != nil && !isSpoilt(err) {
		return all, err
	}
	s.cfg.Log.Error("what Redis holds is spoilt and is mended", "unreadable", len(all.spoilt)/3, "err", err)
	for spoilt, first := all.spoilt, true; first || len(spoilt) > 0; first = false {
		n := min(len(spoilt), 3*atOnce)
		if err := s.eval(ctx, s.scripts.mended, spoilt[:n]...).Err(); err != nil {
			return contents{}, err
		}
		spoilt = spoilt[n:]
	}
	return s.loadOnce(ctx)
}

func (s *Store) loadOnce(ctx context.Context) (contents, error) {
	reply, err := s.eval(ctx, s.scripts.load).Slice()
	if err != nil {
		return contents{}, err
	}
	return parseContents(reply)
}

func (s *Store) isLoaded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loaded
}

func (s *Store) fill(all contents) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.time.observe(all.now) // all is loaded anyway
	now := s.time.now()
	s.mirror.Reset(all.state)
	s.mirror.Advance(now)
	for _, r := range all.state.Leases {
		s.confirm(r)
	}
	s.loaded, s.last, s.nonce, s.generation = true, all.rev, all.nonce, all.generation
	s.contact, s.err = s.cfg.Clock.Now(), nil
	s.wake()
	s.freed.Broadcast()
}

func parseContents(reply []any) (contents, error) {
	if len(reply) != 8 {
		return contents{}, fmt.Errorf("load answered %d values", len(reply))
	}
	now, err1 := strconv.ParseInt(text(reply[0]), 10, 64)
	rev, err2 := strconv.ParseInt(text(reply[1]), 10, 64)
	if err1 != nil || err2 != nil {
		return contents{}, fmt.Errorf("load answered the time %q and the revision %q", text(reply[0]), text(reply[1]))
	}
	all := contents{now: at(now), rev: rev, nonce: text(reply[2]), generation: text(reply[3]), history: text(reply[4])}
	all.state.Leases = parseAll(reply[5], "leases", &all.spoilt, parseRecord)
	all.state.Sessions = parseAll(reply[6], "sessions", &all.spoilt, parseSession)
	all.state.Cooldowns = parseAll(reply[7], "cooling", &all.spoilt, parseCooldown)
	return all, nil
}

// parseAll reads the fields of a hash. What is spoilt is left out and noted: one
// entry that somebody wrote there must not end the service of all others.
func parseAll[T any](reply any, hash string, spoilt *[]any, parse func(name, value string) (T, error)) []T {
	fields, _ := reply.([]any)
	out := make([]T, 0, len(fields)/2)
	for i := 0; i+1 < len(fields); i += 2 {
		x, err := parse(text(fields[i]), text(fields[i+1]))
		if err != nil {
			*spoilt = append(*spoilt, hash, text(fields[i]), text(fields[i+1]))
			continue
		}
		out = append(out, x)
	}
	return out
}
