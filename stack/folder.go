package stack

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/filelock"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/node"
)

const (
	lockSuffix   = ".lock"
	folderPrefix = "stack-"
	podsFolder   = "pods"
)

// folder is the folder of one stack. The lock beside it is held while the stack runs.
type folder struct {
	path string
	lock *filelock.Lock
}

// newFolder removes the stale folders of stacks that no longer run, and creates a folder.
func newFolder(home string) (*folder, error) {
	home, err := ownHome(home)
	if err != nil {
		return nil, err
	}
	if err := sweep(home); err != nil {
		return nil, err
	}
	path, lock, err := claimName(home)
	if err != nil {
		return nil, fmt.Errorf("lock the stack's folder: %w", err)
	}
	f := &folder{path: path, lock: lock}
	if err := node.MakeRoot(path); err != nil {
		return nil, errors.Join(fmt.Errorf("make the stack's folder: %w", err), f.lock.Release())
	}
	return f, nil
}

// claimName picks an unused name and locks it. A stack that sweeps at this moment may hold the new
// lock for an instant, because it takes the file for a stale one.
func claimName(home string) (path string, lock *filelock.Lock, err error) {
	for range 10 {
		path = filepath.Join(home, folderPrefix+strings.ToLower(rand.Text()[:8]))
		if lock, err = filelock.Try(path + lockSuffix); !errors.Is(err, filelock.ErrHeld) {
			break
		}
	}
	return path, lock, err
}

// ownHome creates home and rejects a folder of another user, who could put anything there.
func ownHome(home string) (string, error) {
	if home == "" {
		home = filepath.Join(os.TempDir(), fmt.Sprintf("egress-proxies-%d", os.Getuid()))
	}
	home, err := filepath.Abs(home)
	if err != nil {
		return "", fmt.Errorf("folder of stacks: %w", err)
	}
	if err := node.MakeRoot(home); err != nil {
		return "", fmt.Errorf("make the folder of stacks: %w", err)
	}
	info, err := os.Lstat(home)
	if err != nil {
		return "", fmt.Errorf("look at the folder of stacks: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(stat.Uid) != os.Getuid() {
		return "", fmt.Errorf("%s is not a folder of ours: remove it, or set TMPDIR to a folder of your own", home)
	}
	return home, nil
}

// sweep removes the stale folders of stacks that no longer run.
func sweep(home string) error {
	locks, err := filepath.Glob(filepath.Join(home, folderPrefix+"*"+lockSuffix))
	if err != nil {
		return fmt.Errorf("find stale stacks: %w", err)
	}
	for _, path := range locks {
		lock, err := filelock.Try(path)
		if errors.Is(err, filelock.ErrHeld) {
			continue
		}
		if err != nil {
			return fmt.Errorf("find stale stacks: %w", err)
		}
		stale := folder{path: strings.TrimSuffix(path, lockSuffix), lock: lock}
		if err := stale.remove(); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the folder, what the Pods of a killed node left outside of it, and the lock. No
// other stack reuses the name.
func (f *folder) remove() error {
	noPod := func(types.UID) bool { return false }
	if err := errors.Join(node.RemoveFolders(filepath.Join(f.path, podsFolder), noPod), os.RemoveAll(f.path)); err != nil {
		return fmt.Errorf("remove the stack's folder: %w", errors.Join(err, f.lock.Release()))
	}
	if err := os.Remove(f.path + lockSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the stack's lock: %w", errors.Join(err, f.lock.Release()))
	}
	return f.lock.Release()
}

// sub creates a folder in the folder.
func (f *folder) sub(name string) (string, error) {
	path := filepath.Join(f.path, name)
	if err := node.MakeRoot(path); err != nil {
		return "", fmt.Errorf("make the folder of %s: %w", name, err)
	}
	return path, nil
}

// write writes a file that only its owner can read, and returns its path.
func (f *folder) write(name string, content []byte) (string, error) {
	path := filepath.Join(f.path, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	return path, nil
}

// Scratch is a folder for what the users of a stack start beside it. When its process is killed,
// the next stack removes it as stale.
type Scratch struct{ folder *folder }

// NewScratch creates a folder that only its owner can enter, in home, which is Config.Home. Its
// path is short, as those of sockets must be.
func NewScratch(home string) (*Scratch, error) {
	f, err := newFolder(home)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(f.path, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("close the folder to others: %w", err), f.remove())
	}
	return &Scratch{folder: f}, nil
}

// Path of the folder.
func (s *Scratch) Path() string { return s.folder.path }

// Remove removes the folder and all in it.
func (s *Scratch) Remove() error { return s.folder.remove() }
