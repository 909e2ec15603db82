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
