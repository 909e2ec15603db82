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

// newInfix is in the names of files that are not finished yet.
const newInfix = ".new-"

// ensureFile makes a file that holds no leases where there is none at all. It
// appears as a whole or not at all: what is there and is empty or cut was not
// left by a crash of ours, and has lost what it held.
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

// makeFile makes a file beside the path, with what is in the batch, and returns
// its name.
func makeFile(path string, noSync bool, b *batch, meta storedMeta) (name string, err error) {
	empty, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+newInfix+"*")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w; make the folder %s", err, filepath.Dir(path))
	case err != nil:
		return "", err
	}
	name = empty.Name()
	defer func() {
		if err != nil {
			_ = os.Remove(name)
			err = fmt.Errorf("make %s: %w", path, err)
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

// publish gives a finished file its name, unless that was taken meanwhile.
func publish(from, to string) error {
	err := os.Link(from, to)
	switch {
	case errors.Is(err, fs.ErrExist): // another process was faster
		return nil
	case errors.Is(err, syscall.EPERM), errors.Is(err, errors.ErrUnsupported): // no hard links here
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

// dropUnfinished removes what earlier processes did not finish. The caller has
// locked the file itself, so that nobody needs another.
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

// isFull reports whether an error means that there is no space left. bbolt passes
// some of them on as text.
func isFull(err error) bool {
	for _, full := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, full) || strings.Contains(err.Error(), full.Error()) {
			return true
		}
	}
	return false
}

// explainFull says what to do about a full disk.
func explainFull(path string, err error) error {
	if err == nil || !isFull(err) {
		return err
	}
	return fmt.Errorf("%w; free space where %s is, and the store goes on by itself", err, path)
}
