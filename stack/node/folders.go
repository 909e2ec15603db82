package node

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/types"
)

const (
	podDirPrefix = "pod-"
	sharedMemory = "/dev/shm" // where squid creates its segments; squid has no option for it
)

// podDir is the folder of one Pod, with its configuration, its logs and the files of its process.
// Its base name ends with the Pod's UID.
type podDir string

func newPodDir(root string, uid types.UID) podDir {
	return podDir(filepath.Join(root, podDirPrefix+string(uid)))
}

func (d podDir) run() string       { return filepath.Join(string(d), "run") }
func (d podDir) config() string    { return filepath.Join(string(d), "squid.conf") }
func (d podDir) accessLog() string { return filepath.Join(string(d), "access.log") }
func (d podDir) cacheLog() string  { return filepath.Join(string(d), "cache.log") }
func (d podDir) output() string    { return filepath.Join(string(d), "output.log") }

// service is squid's name of this instance, at most 32 letters and digits. Instances of the same
// name would share their memory segments.
func (d podDir) service() string {
	sum := sha256.Sum256([]byte(filepath.Base(string(d))))
	return "px" + hex.EncodeToString(sum[:12])
}

// prepare empties the folder for a new process, because a stale pid file would keep squid from
// starting; logs stay. owner, if any, is the user of the process.
func (d podDir) prepare(config string, owner *syscall.Credential) error {
	if err := d.clearRun(); err != nil {
		return err
	}
	if err := os.MkdirAll(d.run(), 0o700); err != nil {
		return fmt.Errorf("make the Pod's folder: %w", err)
	}
	if err := os.WriteFile(d.config(), []byte(config), 0o600); err != nil {
		return fmt.Errorf("write the Pod's configuration: %w", err)
	}
	if owner == nil {
		return nil
	}
	for _, path := range []string{string(d), d.run(), d.config()} {
		if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
			return fmt.Errorf("hand the Pod's folder to its user: %w", err)
		}
	}
	return nil
}

func (d podDir) clearRun() error {
	if err := os.RemoveAll(d.run()); err != nil {
		return fmt.Errorf("clear the Pod's folder: %w", err)
	}
	segments, err := filepath.Glob(filepath.Join(sharedMemory, d.service()+"-*"))
	if err != nil {
		return fmt.Errorf("find the Pod's shared memory: %w", err)
	}
	for _, s := range segments {
		if err := os.Remove(s); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the Pod's shared memory: %w", err)
		}
	}
	return nil
}

// remove deletes the folder and everything else that the Pod left on the host.
func (d podDir) remove() error {
	if err := errors.Join(d.clearRun(), os.RemoveAll(string(d))); err != nil {
		return fmt.Errorf("remove the Pod's folder: %w", err)
	}
	return nil
}

// RemoveFolders removes what Pods left under root, except those that keep accepts. It touches
// nothing else there. root may be missing.
func RemoveFolders(root string, keep func(types.UID) bool) error {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list the Pods' folders: %w", err)
	}
	var errs []error
	for _, e := range entries {
		uid, ours := strings.CutPrefix(e.Name(), podDirPrefix)
		if ours && e.IsDir() && !keep(types.UID(uid)) {
			errs = append(errs, newPodDir(root, types.UID(uid)).remove())
		}
	}
	return errors.Join(errs...)
}
