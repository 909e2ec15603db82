package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// rootMode lets other users through to what is theirs, and see nothing.
const rootMode = 0o711

// ErrNotEntered: the user that proxies run as cannot get to their folders.
var ErrNotEntered = errors.New("the proxies' user cannot enter the folder")

// makeRoot makes the folder if it is not there, for all users to pass whatever
// the umask says.
func makeRoot(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), rootMode); err != nil {
		return err
	}
	switch err := os.Mkdir(path, rootMode); {
	case err == nil:
		return os.Chmod(path, rootMode)
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	return os.MkdirAll(path, rootMode) // an error unless it is a folder
}

// canEnter returns nil when the user can get to the folder at path, and else an
// error that unwraps to ErrNotEntered and names the one that keeps it out. Many
// temporary folders are for their owner alone, and squid does not run as root.
// A nil user is ourselves.
func canEnter(path string, user *syscall.Credential) error {
	if user == nil {
		return nil
	}
	dir, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("find the folder: %w", err)
	}
	for {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("look at the folder: %w", err)
		}
		if !passes(info, user) {
			return fmt.Errorf("%w: user %d must pass %s (mode %s) on the way to %s; let it (chmod o+x %s), or take a folder elsewhere (TMPDIR), or the built-in proxy (--squid builtin)",
				ErrNotEntered, user.Uid, dir, info.Mode(), path, dir)
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil
		}
		dir = parent
	}
}

// passes applies the permission bits: the first class that the user is in
// decides.
func passes(dir fs.FileInfo, user *syscall.Credential) bool {
	mode := dir.Mode().Perm()
	stat, ok := dir.Sys().(*syscall.Stat_t)
	switch {
	case !ok || user.Uid == 0:
		return true
	case stat.Uid == user.Uid:
		return mode&0o100 != 0
	case stat.Gid == user.Gid:
		return mode&0o010 != 0
	}
	return mode&0o001 != 0
}
