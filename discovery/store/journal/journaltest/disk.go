// Package journaltest provides disks that are small enough to fill.
package journaltest

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/stores"
)

// SmallDisk is a file system of that many bytes, in memory, for as long as the test runs.
// Where that is not allowed the test is skipped.
func SmallDisk(t testing.TB, size int) *stores.Disk {
	t.Helper()
	disk, err := stores.NewDisk(size)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) {
		t.Skipf("a small disk takes root; the test with a limit on the size of files runs everywhere: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, disk.Close()) })
	return disk
}
