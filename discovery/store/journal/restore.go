package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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

// newInfix is in the names of unfinished files.
const newInfix = ".new-"

// ensureFile creates an empty lease file if there is no file at all. Creation is
// atomic: an empty or truncated file was not left by a crash of ours, and has lost
// leases.
func ensureFile(path string, noSync bool) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	unfinished, err := makeFile(path, noSync, newBatch(timeline{}), storedMeta{})
	if err != nil {
		return err
	}
	defer os.Remove(unfinished)
	return publish(unfinished, path)
}

// makeFile creates a file beside the path with the contents of the batch, and returns
// its name.
func makeFile(path string, noSync bool, b *batch, meta storedMeta) (name string, err error) {
	empty, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+newInfix+"*")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w; create the folder %s", err, filepath.Dir(path))
	case err != nil:
		return "", err
	}
	name = empty.Name()
	defer func() {
		if err != nil {
			_ = os.Remove(name)
			err = fmt.Errorf("create %s: %w", path, err)
		}
	}()
	if err := empty.Close(); err != nil {
		return "", err
	}
	f, err := initFile(name, noSync)
	if err != nil {
		return "", err
	}
	return name, errors.Join(f.commit(b, meta), f.close())
}

// publish gives a finished file its name, unless another process has created the file.
func publish(from, to string) error {
	err := os.Link(from, to)
	switch {
	case errors.Is(err, fs.ErrExist): // by another process
		return nil
	case errors.Is(err, syscall.EPERM), errors.Is(err, errors.ErrUnsupported): // no hard links on this file system
		err = os.Rename(from, to)
	}
	if err != nil {
		return err
	}
	return syncFolder(to)
}

// syncFolder makes the name of a file durable.
func syncFolder(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// dropUnfinished removes files that earlier processes did not finish. The caller holds
// the lock, so no other process needs them.
func dropUnfinished(path string) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(path)+newInfix) {
			_ = os.Remove(filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
}

// isFull reports whether an error means that the disk is full. bbolt returns some of
// those errors as text.
func isFull(err error) bool {
	for _, full := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, full) || strings.Contains(err.Error(), full.Error()) {
			return true
		}
	}
	return false
}

// explainFull adds what to do about a full disk.
func explainFull(path string, err error) error {
	if err == nil || !isFull(err) {
		return err
	}
	return fmt.Errorf("%w; free space on the disk of %s, the store retries by itself", err, path)
}
