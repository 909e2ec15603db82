package stores

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// LimitFiles lets a process write no file beyond so many bytes, as a full disk
// would where nobody may make small disks; EFBIG takes the place of ENOSPC. 0
// lifts the limit.
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
