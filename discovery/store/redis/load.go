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
	history    string // see history in repair.lua
	corrupt    []any  // unreadable entries, as arguments of fix.lua
	state      ledger.State
}

// ensureLoaded loads the mirror from Redis when it is stale and the log cannot bring it
// up to date. What Redis has lost of the mirror is restored first.
func (s *Store) ensureLoaded(ctx context.Context) error {
	if s.isLoaded() {
		return nil
	}
	s.loading.Lock()
	defer s.loading.Unlock()
	if s.isLoaded() {
		return nil
	}
	all, err := s.loadAndRestore(ctx)
	if err != nil {
		return s.failed(ctx, err)
	}
	s.resetMirror(all)
	return nil
}

// loadAndRestore loads until Redis has all that the mirror has: it may lose it again
// while it is restored.
func (s *Store) loadAndRestore(ctx context.Context) (contents, error) {
	restored := "" // the generation that has all of it
	for range maxReloads {
		all, err := s.load(ctx)
		switch {
		case err != nil:
			return contents{}, err
		case all.history != historyLost || all.generation == restored:
			return all, nil
		}
		if restored, err = s.restore(ctx); err != nil {
			return contents{}, err
		}
	}
	return contents{}, errInconsistent
}

// load reads everything, and once more after a repair of corrupt data.
func (s *Store) load(ctx context.Context) (contents, error) {
	all, err := s.loadOnce(ctx)
	if err == nil && len(all.corrupt) == 0 || err != nil && !isCorrupt(err) {
		return all, err
	}
	s.cfg.Log.Error("data in Redis is corrupt and is repaired", "unreadable", len(all.corrupt)/3, "err", err)
	for corrupt, first := all.corrupt, true; first || len(corrupt) > 0; first = false {
		n := min(len(corrupt), 3*restoredPerCall)
		if err := s.eval(ctx, s.scripts.fix, corrupt[:n]...).Err(); err != nil {
			return contents{}, err
		}
		corrupt = corrupt[n:]
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

func (s *Store) resetMirror(all contents) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.time.observe(all.now) // a clock that went back needs no other reload
	now := s.time.now()
	s.mirror.Reset(all.state)
	s.mirror.Advance(now)
	for _, r := range all.state.Leases {
		s.confirm(r)
	}
	s.loaded, s.last, s.nonce, s.generation = true, all.rev, all.nonce, all.generation
	s.lastAnswer, s.err = s.cfg.Clock.Now(), nil
	s.NotifyChanged(s.mirror)
	s.NotifyFreed()
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
	all.state.Leases = parseAll(reply[5], "leases", &all.corrupt, parseRecord)
	all.state.Sessions = parseAll(reply[6], "sessions", &all.corrupt, parseSession)
	all.state.Cooldowns = parseAll(reply[7], "cooling", &all.corrupt, parseCooldown)
	return all, nil
}

// parseAll reads the fields of a hash. It skips and notes corrupt fields: one of them
// must not stop the service for all others.
func parseAll[T any](reply any, hash string, corrupt *[]any, parse func(name, value string) (T, error)) []T {
	fields, _ := reply.([]any)
	out := make([]T, 0, len(fields)/2)
	for i := 0; i+1 < len(fields); i += 2 {
		x, err := parse(text(fields[i]), text(fields[i+1]))
		if err != nil {
			*corrupt = append(*corrupt, hash, text(fields[i]), text(fields[i+1]))
			continue
		}
		out = append(out, x)
	}
	return out
}
