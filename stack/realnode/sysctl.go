package realnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// sysctls are what a kubelet sets, on the whole machine.
func sysctls() []string {
	return []string{
		"vm/overcommit_memory", "vm/panic_on_oom",
		"kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
	}
}

// saveSysctls returns a function that puts them back.
func saveSysctls() (restore func() error, err error) {
	saved := map[string][]byte{}
	for _, name := range sysctls() {
		path := filepath.Join("/proc/sys", name)
		value, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read what a kubelet will change: %w", err)
		}
		saved[path] = value
	}
	return func() error {
		var errs []error
		for path, value := range saved {
			if err := os.WriteFile(path, value, 0o644); err != nil {
				errs = append(errs, fmt.Errorf("put back %s: %w", path, err))
			}
		}
		return errors.Join(errs...)
	}, nil
}

// cgroupParent is where containerd puts its containers' groups.
const cgroupParent = "k8s.io"

// removeCgroups removes the groups of containers that are gone. One that is in
// use cannot be removed, and is not ours.
func removeCgroups() error {
	for _, pattern := range []string{"/sys/fs/cgroup/*/" + cgroupParent, "/sys/fs/cgroup/" + cgroupParent} {
		parents, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, parent := range parents {
			groups, err := os.ReadDir(parent)
			if err != nil {
				return fmt.Errorf("look for groups of containers: %w", err)
			}
			for _, group := range groups {
				if group.IsDir() {
					_ = os.Remove(filepath.Join(parent, group.Name()))
				}
			}
			_ = os.Remove(parent)
		}
	}
	return nil
}
