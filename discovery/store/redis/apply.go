package redis

import "fmt"

// applyAnswer applies an answer's changes to the mirror, in order and each once.
func (s *Store) applyAnswer(a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if back := s.time.observe(a.now); back {
		s.loaded = false
	}
	s.lastAnswer, s.err = s.cfg.Clock.Now(), nil
	if a.reload {
		// The changes do not build on the mirror, which is restored to Redis first:
		// a placeholder must not replace a record.
		s.loaded = false
	}
	s.applyChanges(a.changes)
	s.NotifyChanged(s.mirror)
}

// applyChanges applies changes up to the first gap or unreadable change. The caller
// holds mu.
func (s *Store) applyChanges(changes []change) {
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

// apply applies one change to the mirror.
func (s *Store) apply(c change) error {
	now := s.time.now()
	switch c.op {
	case "L": // a lease was granted or renewed
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
		s.confirm(r)
	case "R": // a lease was released
		s.mirror.Drop(now, c.name)
		s.NotifyFreed()
		if c.session != "" {
			return s.applySession(c.value, c.session)
		}
	case "C": // a cooldown was started or extended
		x, err := parseCooldown(c.name, c.value)
		if err != nil {
			return err
		}
		s.mirror.PutCooldown(now, x)
	case "E": // cooldowns were ended
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
	s.NotifyFreed()
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
