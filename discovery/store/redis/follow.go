package redis

import "fmt"

// absorb applies an answer's changes to the mirror, in order and each once.
func (s *Store) absorb(a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if back := s.time.observe(a.now); back {
		s.loaded = false
	}
	s.contact, s.err = s.cfg.Clock.Now(), nil
	if a.reload {
		// Its changes are none of what the mirror knows, which is put back first: a
		// record that says less than the mirror's must not take its place.
		s.loaded = false
	}
	s.follows(a.changes)
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
		s.confirm(r)
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
