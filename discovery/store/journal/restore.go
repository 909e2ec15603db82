package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// restore opens the file, proves that it can be written to, and puts what it
// holds into the ledger. A transaction that failed may have left bbolt and the
// disk of different minds: it is opened anew to find out what was kept.
func (s *Store) restore() error {
	if s.file != nil {
		_ = s.file.close()
		s.file = nil
	}
	f, held, err := s.reopen()
	if s.known != nil && lost(err) {
		if err = s.rewrite(err); err == nil {
			f, held, err = s.reopen()
		}
	}
	if err != nil {
		return err
	}
	if err := s.adopt(f, held); err != nil {
		_ = f.close()
		return err
	}
	s.file, s.known = f, f.info
	return nil
}

// reopen opens the file and loads what it holds. The first time it makes one where
// there is none.
func (s *Store) reopen() (*file, stored, error) {
	if s.known == nil {
		if err := ensureFile(s.cfg.Path, s.cfg.noSync); err != nil {
			return nil, stored{}, err
		}
	}
	f, err := openFile(s.cfg.Path, s.cfg.noSync)
	if err != nil {
		return nil, stored{}, err
	}
	dropUnfinished(s.cfg.Path)
	held, err := f.load()
	if err == nil && s.known != nil && !os.SameFile(s.known, f.info) {
		err = fmt.Errorf("%s: %w", s.cfg.Path, errGone)
	}
	if err != nil {
		_ = f.close()
		return nil, stored{}, err
	}
	return f, held, nil
}

// lost reports whether an error means that the file does not hold any more what
// was written to it.
func lost(err error) bool {
	var d *damagedError
	return errors.As(err, &d) || errors.Is(err, errGone) || errors.Is(err, fs.ErrNotExist)
}

// rewrite puts a new file in the place of one that was spoilt, cut, removed or
// replaced while the store had it. Memory has all that was promised, so nothing is
// forgotten. What is there now is kept beside it.
func (s *Store) rewrite(cause error) error {
	s.mu.Lock()
	state, alive := s.ledger.State(), s.alive
	s.mu.Unlock()
	b := newBatch(s.line)
	b.putAll(state)
	unfinished, err := makeFile(s.cfg.Path, s.cfg.noSync, b, storedMeta{Alive: alive.UnixNano(), Fence: state.Fence})
	if err != nil {
		return errors.Join(cause, err)
	}
	aside := s.cfg.Path + ".damaged"
	_ = os.Remove(aside)
	_ = os.Link(s.cfg.Path, aside) // for whoever wants to know; there may be nothing to keep
	if err := errors.Join(os.Rename(unfinished, s.cfg.Path), syncFolder(s.cfg.Path)); err != nil {
		return errors.Join(cause, err)
	}
	if s.known, err = os.Stat(s.cfg.Path); err != nil {
		return errors.Join(cause, err)
	}
	s.cfg.Log.Error("lease file was spoilt while it was in use; it is made anew from memory, and nothing is forgotten",
		"file", s.cfg.Path, "kept", aside, "leases", len(state.Leases), "err", cause)
	return nil
}

// adopt writes the state that goes on, and serves it once that is durable: an
// outage must not be counted twice, and not be lost either.
func (s *Store) adopt(f *file, held stored) error {
	s.mu.Lock()
	fence := max(s.ledger.Fence(), held.Fence)
	s.mu.Unlock()
	now := s.cfg.Clock.Now()
	outage := held.resume(s.line, now)
	if outage != 0 {
		s.cfg.Log.Info("lease store goes on", "file", s.cfg.Path, "leases", len(held.Leases), "cooldowns", len(held.Cooldowns), "moved", outage.String())
	}
	b := newBatch(s.line)
	b.putAll(held.State)
	meta := storedMeta{Alive: s.line.nanos(now), Fence: fence}
	if err := f.commit(b, meta); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.Reset(held.State)
	s.pending, s.current, s.failure, s.alive = newBatch(s.line), nil, nil, at(meta.Alive)
	return nil
}
