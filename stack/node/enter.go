package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// RootMode lets other users enter the folder without listing it: squid runs as its own user when we
// are root.
const RootMode = 0o711

// ErrNotEntered: the user of the proxies cannot enter their folders.
var ErrNotEntered = errors.New("the proxies' user cannot enter the folder")

// MakeRoot creates the folder, for all users to enter, whatever the umask is. One that is there stays
// as it is.
func MakeRoot(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), RootMode); err != nil {
		return err
	}
	switch err := os.Mkdir(path, RootMode); {
	case err == nil:
		return os.Chmod(path, RootMode)
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	return os.MkdirAll(path, RootMode) // an error unless it is a folder
}

// canEnter returns an error that unwraps to ErrNotEntered when the user cannot enter the folder at
// path, and names the folder that blocks the user. Many temporary folders are for their owner
// alone, and squid does not run as root. A nil user is our own.
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
			return fmt.Errorf("stat the folder: %w", err)
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

// passes applies the permission bits: the first class of the user decides.
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
