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

// socketMode admits the owner and its group, which the containers of a Pod share.
const socketMode = 0o660

// Listen listens on the unix socket at path. It replaces the socket of a killed
// adapter. A socket with a listener, and a file that is no socket, are errors.
func Listen(path string) (net.Listener, error) {
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	// The umask applies when the file is created, so that it never has another mode.
	before := syscall.Umask(0o777 &^ socketMode)
	ln, err := net.Listen("unix", path)
	syscall.Umask(before)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return ln, nil
}

// removeStale removes a socket without a listener.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("the file is not a socket; choose another path")
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
