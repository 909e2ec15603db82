package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// restore opens the file, commits to it, and resets the ledger to its contents. After a
// failed transaction bbolt's memory and the disk may differ, so the file is opened again.
func (s *Store) restore() error {
	if s.file != nil {
		_ = s.file.close()
		s.file = nil
	}
	f, found, err := s.reopen()
	if s.known != nil && isLoss(err) {
		if err = s.rewrite(err); err == nil {
			f, found, err = s.reopen()
		}
	}
	if err != nil {
		return err
	}
	if err := s.adopt(f, found); err != nil {
		_ = f.close()
		return err
	}
	s.file, s.known = f, f.info
	return nil
}

// reopen opens and loads the file. The first time it creates a missing one.
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
	found, err := f.load()
	if err == nil && s.known != nil && !os.SameFile(s.known, f.info) {
		err = fmt.Errorf("%s: %w", s.cfg.Path, errGone)
	}
	if err != nil {
		_ = f.close()
		return nil, stored{}, err
	}
	return f, found, nil
}

// isLoss reports whether an error means that the file has lost commits.
func isLoss(err error) bool {
	var d *damagedError
	return errors.As(err, &d) || errors.Is(err, errGone) || errors.Is(err, fs.ErrNotExist)
}

// rewrite replaces a file that was damaged, truncated, removed or replaced while it was in
// use. Memory has everything, so nothing is lost. The old file is kept beside it.
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
	_ = os.Link(s.cfg.Path, aside) // for inspection; there may be none
	if err := errors.Join(os.Rename(unfinished, s.cfg.Path), syncFolder(s.cfg.Path)); err != nil {
		return errors.Join(cause, err)
	}
	if s.known, err = os.Stat(s.cfg.Path); err != nil {
		return errors.Join(cause, err)
	}
	s.cfg.Log.Error("the lease file was damaged while in use; it was rewritten from memory, and no lease is lost",
		"file", s.cfg.Path, "kept", aside, "leases", len(state.Leases), "err", cause)
	return nil
}

// adopt commits the state with its new deadlines before the ledger serves it: an outage
// must extend deadlines once, and exactly once.
func (s *Store) adopt(f *file, found stored) error {
	s.mu.Lock()
	fence := max(s.ledger.Fence(), found.Fence)
	s.mu.Unlock()
	now := s.cfg.Clock.Now()
	outage := found.resume(s.line, now)
	if outage != 0 {
		s.cfg.Log.Info("lease file opened", "file", s.cfg.Path, "leases", len(found.Leases), "cooldowns", len(found.Cooldowns), "moved", outage.String())
	}
	b := newBatch(s.line)
	b.putAll(found.State)
	meta := storedMeta{Alive: s.line.nanos(now), Fence: fence}
	if err := f.commit(b, meta); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.Reset(found.State)
	s.pending.batch, s.current, s.failure, s.alive = newBatch(s.line), nil, nil, at(meta.Alive)
	return nil
}
