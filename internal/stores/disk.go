// Package stores is what lease stores need in tests and in the fault campaign: a real Redis
// that can be killed and frozen, and a small disk that can be filled.
package stores

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// balloon is the file that fills a disk.
const balloon = "balloon"

// Disk is a small file system in memory. It is not mounted: other processes of this user
// reach it through our file descriptor, and it vanishes with our process.
type Disk struct {
	root *os.File
}

// NewDisk makes a disk of size bytes. It needs root.
func NewDisk(size int) (*Disk, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a small disk: open tmpfs: %w", err)
	}
	defer unix.Close(fs)
	for key, value := range map[string]string{"size": strconv.Itoa(size), "mode": "0700"} {
		if err := unix.FsconfigSetString(fs, key, value); err != nil {
			return nil, fmt.Errorf("make a small disk: %s=%s: %w", key, value, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("make a small disk: %w", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a small disk: mount it: %w", err)
	}
	return &Disk{root: os.NewFile(uintptr(mount), "disk")}, nil
}

// Path is its root folder.
func (d *Disk) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), d.root.Fd()) }

// Fill uses all free space.
func (d *Disk) Fill() error {
	file, err := os.OpenFile(filepath.Join(d.Path(), balloon), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("fill the disk: %w", err)
	}
	defer file.Close()
	page := make([]byte, os.Getpagesize())
	for err == nil {
		_, err = file.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("fill the disk: %w", err)
	}
	return nil
}

// Free undoes Fill.
func (d *Disk) Free() error {
	if err := os.Remove(filepath.Join(d.Path(), balloon)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("free the disk: %w", err)
	}
	return nil
}

// Close drops the disk once no process has a file open there.
func (d *Disk) Close() error { return d.root.Close() }

// LimitFiles limits the file size of a process, where a small disk cannot be made:
// writes fail with EFBIG in place of ENOSPC. 0 removes the limit.
func LimitFiles(pid int, size uint64) error {
	limit := unix.Rlimit{Cur: size, Max: unix.RLIM_INFINITY}
	if size == 0 {
		limit.Cur = unix.RLIM_INFINITY
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		return fmt.Errorf("limit the files of process %d: %w", pid, err)
	}
	return nil
}
