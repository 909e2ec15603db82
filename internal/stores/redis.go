package stores

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
)

const (
	redisGrace = 5 * time.Second
	redisPoll  = 5 * time.Millisecond
	redisReady = 30 * time.Second // for its start on a busy machine
)

// ErrNoRedis is returned when no server is installed.
var ErrNoRedis = errors.New("neither redis-server nor valkey-server is installed: apt-get install redis-server")

// Redis is a server on a unix socket.
type Redis struct {
	program, dir string
	process      atomic.Pointer[process.Process] // the current one
}

// StartRedis starts a server with its files in dir and more lines of configuration, such
// as "appendonly yes", and returns when it responds. The path of dir must be short: that
// of a socket has a limit.
func StartRedis(ctx context.Context, dir string, config ...string) (*Redis, error) {
	program, err := findRedis()
	if err != nil {
		return nil, err
	}
	r := &Redis{program: program, dir: dir}
	base := fmt.Sprintf("port 0\nunixsocket %s\nunixsocketperm 700\ndir %s\nsave \"\"\ndaemonize no\n", r.Socket(), dir)
	if err := os.WriteFile(r.path("redis.conf"), []byte(base+strings.Join(config, "\n")+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("configure redis: %w", err)
	}
	if err := r.Start(ctx); err != nil {
		return nil, errors.Join(err, r.Stop())
	}
	return r, nil
}

func findRedis() (string, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoRedis
}

func (r *Redis) path(name string) string { return filepath.Join(r.dir, name) }

// Socket is the path of its socket.
func (r *Redis) Socket() string { return r.path("s") }

// URL is the value of --lease-store.
func (r *Redis) URL() string { return "unix://" + r.Socket() }

// Start starts the server, also after Kill, and returns when it responds.
func (r *Redis) Start(ctx context.Context) error {
	started, err := process.Start(process.Command{
		Name: "redis", Path: r.program, Args: []string{r.path("redis.conf")}, Dir: r.dir, LogFile: r.path("redis.log"),
	})
	if err != nil {
		return err
	}
	r.process.Store(started)
	return r.awaitAnswer(ctx, started)
}

func (r *Redis) awaitAnswer(ctx context.Context, p *process.Process) error {
	ctx, cancel := context.WithTimeout(ctx, redisReady)
	defer cancel()
	client := goredis.NewClient(&goredis.Options{Network: "unix", Addr: r.Socket(), MaxRetries: -1})
	defer client.Close()
	for {
		err := client.Ping(ctx).Err()
		if err == nil || strings.HasPrefix(err.Error(), "NOAUTH") { // it wants a password
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("redis exited: %w", errors.Join(p.Wait(), err))
		case <-ctx.Done():
			return fmt.Errorf("redis does not respond: %w; its log ends with:\n%s", err, p.LogTail())
		case <-time.After(redisPoll):
		}
	}
}

// Kill sends SIGKILL and waits for the exit.
func (r *Redis) Kill() error {
	p := r.process.Load()
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.Done()
	if err := os.Remove(r.Socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove redis's socket: %w", err)
	}
	return nil
}

// Signal sends it a signal, such as SIGSTOP.
func (r *Redis) Signal(sig os.Signal) error { return r.process.Load().Signal(sig) }

// Stop stops the server.
func (r *Redis) Stop() error {
	p := r.process.Load()
	if p == nil {
		return nil
	}
	if err := p.Signal(syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return p.Stop(redisGrace)
}
