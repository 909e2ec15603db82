// Package filelock marks a folder as in use by a process. The kernel drops the
// mark when the process ends, however it ends.
package filelock

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrHeld: another process, or another part of this one, has the lock.
var ErrHeld = errors.New("locked by another process")

// Lock is a lock that is held.
type Lock struct{ file *os.File }

// Try takes the lock at path, making the file when it is not there, and returns
// an error that unwraps to ErrHeld when it is taken. It does not wait.
func Try(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return &Lock{file: f}, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrHeld
	}
	return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
}

// Release gives the lock up. The file stays: removing it could let two
// processes each lock a file of that name.
func (l *Lock) Release() error {
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("release lock: %w", err)
	}
	return nil
}
