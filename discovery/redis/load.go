package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/ledger"
)

// contents is all that Redis holds.
type contents struct {
	now   time.Time
	rev   int64
	nonce string
	state ledger.State
}

// ensureLoaded fills the mirror when it is not what Redis held at some moment:
// at first, and after changes that cannot be told one by one any more.
func (s *Store) ensureLoaded(ctx context.Context) error {
	if s.isLoaded() {
		return nil
	}
	s.loading.Lock()
	defer s.loading.Unlock()
	if s.isLoaded() {
		return nil
	}
	s.mu.Lock()
	now := s.time.argument()
	s.mu.Unlock()
	reply, err := s.scripts.load.Run(ctx, s.client, []string{s.key}, now, 0, "", "").Slice()
	if err != nil {
		return s.failed(ctx, err)
	}
	all, err := parseContents(reply)
	if err != nil {
		return s.failed(ctx, err)
	}
	s.fill(all)
	return nil
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
		if t := s.pending[r.ID]; t != nil {
			t.confirmed = true
		}
	}
	s.loaded, s.last, s.nonce = true, all.rev, all.nonce
	s.contact, s.err = s.cfg.Clock.Now(), nil
	s.wake()
	s.freed.Broadcast()
}

func parseContents(reply []any) (contents, error) {
	if len(reply) != 6 {
		return contents{}, fmt.Errorf("load answered %d values", len(reply))
	}
	now, err1 := strconv.ParseInt(text(reply[0]), 10, 64)
	rev, err2 := strconv.ParseInt(text(reply[1]), 10, 64)
	if err1 != nil || err2 != nil {
		return contents{}, fmt.Errorf("load answered the time %q and the revision %q", text(reply[0]), text(reply[1]))
	}
	all := contents{now: at(now), rev: rev, nonce: text(reply[2])}
	err := each(reply[3], func(id, value string) error {
		r, err := parseRecord(id, value)
		all.state.Leases = append(all.state.Leases, r)
		return err
	})
	if err != nil {
		return contents{}, err
	}
	err = each(reply[4], func(name, value string) error {
		x, err := parseSession(name, value)
		all.state.Sessions = append(all.state.Sessions, x)
		return err
	})
	if err != nil {
		return contents{}, err
	}
	return all, each(reply[5], func(name, value string) error {
		x, err := parseCooldown(name, value)
		all.state.Cooldowns = append(all.state.Cooldowns, x)
		return err
	})
}

// each calls f for the fields of a hash.
func each(reply any, f func(name, value string) error) error {
	fields, _ := reply.([]any)
	for i := 0; i+1 < len(fields); i += 2 {
		if err := f(text(fields[i]), text(fields[i+1])); err != nil {
			return err
		}
	}
	return nil
}
