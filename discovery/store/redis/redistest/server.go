// Package redistest starts real Redis servers for tests.
package redistest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	goredis "github.com/redis/go-redis/v9"
)

// patience is for how long a server may not answer on a machine that is busy with
// other tests.
const patience = time.Minute

// Server is a redis-server (or valkey-server) on a unix socket in a folder of
// its own.
type Server struct {
	dir  string
	args []string
	cmd  *exec.Cmd
}

// Start runs a server for the test, with more lines of configuration such as
// "appendonly yes". Without one on this machine the test is skipped, unless
// PX_REQUIRE_REDIS is 1.
func Start(t testing.TB, config ...string) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "redis") // short: socket paths are limited
	require.NoError(t, err)
	s := &Server{dir: dir, args: config}
	t.Cleanup(func() {
		s.Kill()
		_ = os.RemoveAll(dir)
	})
	s.Run(t)
	return s
}

// URL of the server, for discovery/store/redis.ParseURL.
func (s *Server) URL() string { return "unix://" + s.Socket() }

// Socket that the server listens on.
func (s *Server) Socket() string { return filepath.Join(s.dir, "s") }

// Dir holds what the server keeps.
func (s *Server) Dir() string { return s.dir }

// Run starts the server, again after Kill, and waits until it answers.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	program := find(t)
	conf := fmt.Sprintf("port 0\nunixsocket %s\ndir %s\nsave \"\"\ndaemonize no\nlogfile %s\n", s.Socket(), s.dir, filepath.Join(s.dir, "log"))
	for _, line := range s.args {
		conf += line + "\n"
	}
	path := filepath.Join(s.dir, "redis.conf")
	require.NoError(t, os.WriteFile(path, []byte(conf), 0o600))
	s.cmd = exec.Command(program, path)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, s.cmd.Start())
	c := s.Client()
	defer func() { _ = c.Close() }()
	require.Eventually(t, func() bool { return answers(c.Ping(context.Background()).Err()) }, 30*time.Second, 5*time.Millisecond,
		"%s does not answer; see its log in %s", program, s.dir)
}

// answers reports whether a server is there, be it one that wants a password.
func answers(err error) bool { return err == nil || strings.HasPrefix(err.Error(), "NOAUTH") }

// Client for looking at what the server holds.
func (s *Server) Client() *goredis.Client {
	return goredis.NewClient(&goredis.Options{
		Network: "unix", Addr: s.Socket(), MaxRetries: -1,
		ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience,
	})
}

// Kill ends the server as a crash would.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
	_ = os.Remove(s.Socket())
}

// Pause stops the server without ending it, as a long disk stall would.
func (s *Server) Pause() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume ends a pause.
func (s *Server) Resume() error { return s.cmd.Process.Signal(syscall.SIGCONT) }

func find(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const how = "neither redis-server nor valkey-server is installed: apt-get install redis-server"
	if os.Getenv("PX_REQUIRE_REDIS") == "1" {
		t.Fatal(how)
	}
	t.Skip(how)
	return ""
}
