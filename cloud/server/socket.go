package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

// socketMode lets the owner and its group talk to the adapter: the containers of
// a Pod share a group, nobody else does.
const socketMode = 0o660

// Listen listens on the unix socket at path. A socket that a killed adapter has
// left behind is replaced; one that somebody listens on, and anything that is
// no socket, is an error.
func Listen(path string) (net.Listener, error) {
	if err := clear(path); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	// The file must never be there with other rights than its own.
	before := syscall.Umask(0o777 &^ socketMode)
	ln, err := net.Listen("unix", path)
	syscall.Umask(before)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return ln, nil
}

// clear removes a socket that nobody listens on.
func clear(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("there is something that is not a socket; choose another path")
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return errors.New("another adapter listens here")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}
