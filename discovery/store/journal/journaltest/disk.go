// Package journaltest provides disks that are small enough to fill.
package journaltest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Disk is a file system in memory that only the test sees.
type Disk struct {
	// Dir is its root, for any process of this user.
	Dir string
}

// SmallDisk mounts a file system of that many bytes for as long as the test runs,
// in a mount namespace of its own. Where that is not allowed the test is skipped.
func SmallDisk(t testing.TB, bytes int) *Disk {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a small disk takes root; the test with a limit on the size of files runs everywhere")
	}
	at, mounted, done, gone := t.TempDir(), make(chan error), make(chan struct{}), make(chan struct{})
	d := &Disk{}
	go func() {
		defer close(gone)
		// Never unlocked: the thread ends with the goroutine, and the namespace with it.
		runtime.LockOSThread()
		err := mount(at, bytes)
		d.Dir = fmt.Sprintf("/proc/%d/task/%d/root%s", os.Getpid(), syscall.Gettid(), at)
		mounted <- err
		<-done
		if err == nil {
			_ = syscall.Unmount(at, syscall.MNT_DETACH)
		}
	}()
	t.Cleanup(func() { close(done); <-gone })
	if err := <-mounted; err != nil {
		t.Skipf("mounting a small disk is not allowed here: %v", err)
	}
	_, err := os.Stat(d.Dir)
	require.NoError(t, err)
	return d
}

// mount mounts in a mount namespace of the calling thread.
func mount(at string, bytes int) error {
	if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("tmpfs", at, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	return nil
}

func (d *Disk) balloon() string { return filepath.Join(d.Dir, "balloon") }

// Fill takes all space that is left.
func (d *Disk) Fill(t testing.TB) {
	t.Helper()
	f, err := os.OpenFile(d.balloon(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	require.NoError(t, err)
	for _, size := range []int{1 << 16, 1 << 10, 1} {
		for err == nil {
			_, err = f.Write(make([]byte, size))
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
		err = nil
	}
	require.NoError(t, f.Close())
}

// Free frees what Fill took.
func (d *Disk) Free(t testing.TB) {
	t.Helper()
	require.NoError(t, os.Remove(d.balloon()))
}
