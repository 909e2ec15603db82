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
	// passable lets other users through to what is theirs, and see nothing:
	// squid runs as its own user when we are root.
	passable = 0o711
)

// folder is the folder of one stack. Its lock, beside it, is held while the
// stack lives.
type folder struct {
	path string
	lock *filelock.Lock
}

// newFolder removes what dead stacks have left in home, and makes a folder.
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
	if err := makePassable(path); err != nil {
		return nil, errors.Join(fmt.Errorf("make the stack's folder: %w", err), f.lock.Release())
	}
	return f, nil
}

// claimName takes a name that no other stack has. One that sweeps at this moment may
// have taken the file of the lock, that nobody holds yet, for a dead stack's.
func claimName(home string) (path string, lock *filelock.Lock, err error) {
	for range 10 {
		path = filepath.Join(home, folderPrefix+strings.ToLower(rand.Text()[:8]))
		if lock, err = filelock.Try(path + lockSuffix); !errors.Is(err, filelock.ErrHeld) {
			break
		}
	}
	return path, lock, err
}

// ownHome makes home and refuses one that belongs to another user, who could
// put anything there.
func ownHome(home string) (string, error) {
	if home == "" {
		home = filepath.Join(os.TempDir(), fmt.Sprintf("egress-proxies-%d", os.Getuid()))
	}
	home, err := filepath.Abs(home)
	if err != nil {
		return "", fmt.Errorf("folder of stacks: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(home), passable); err != nil {
		return "", fmt.Errorf("make the folder of stacks: %w", err)
	}
	if err := makePassable(home); err != nil && !errors.Is(err, os.ErrExist) {
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

// sweep removes the folders of stacks that no longer live.
func sweep(home string) error {
	locks, err := filepath.Glob(filepath.Join(home, folderPrefix+"*"+lockSuffix))
	if err != nil {
		return fmt.Errorf("look for dead stacks: %w", err)
	}
	for _, path := range locks {
		lock, err := filelock.Try(path)
		if errors.Is(err, filelock.ErrHeld) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look for dead stacks: %w", err)
		}
		dead := folder{path: strings.TrimSuffix(path, lockSuffix), lock: lock}
		if err := dead.remove(); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the folder, what a killed node's Pods left outside of it, and
// its lock. No other stack ever takes this name.
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

// sub makes a folder in the folder.
func (f *folder) sub(name string) (string, error) {
	path := filepath.Join(f.path, name)
	if err := makePassable(path); err != nil {
		return "", fmt.Errorf("make the folder of %s: %w", name, err)
	}
	return path, nil
}

// makePassable makes a folder that others may pass whatever the umask says.
func makePassable(path string) error {
	if err := os.Mkdir(path, passable); err != nil {
		return err
	}
	return os.Chmod(path, passable)
}

// write writes a file that only we can read, and returns its path.
func (f *folder) write(name string, content []byte) (string, error) {
	path := filepath.Join(f.path, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	return path, nil
}
