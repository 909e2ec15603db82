package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
)

const (
	// stopGrace is the shutdown timeout of one of our programs.
	stopGrace = 15 * time.Second
	// readyTimeout bounds the time until a program is ready, also on a loaded machine.
	readyTimeout = 90 * time.Second
	readyPoll    = 50 * time.Millisecond
)

// program is how one of our programs is started.
type program struct {
	name string
	// path of the executable; a bare name is in BinDir, "" is name there.
	path string
	args []string
	// env is added to a minimal environment: the PX_ variables of the user belong to other
	// installations.
	env []string
	// ops is the address of /readyz, "" for none.
	ops string
	// metrics is the address of /metrics, "" when it is ops.
	metrics string
	// listens is the address that accepts connections when a program without ops is ready.
	listens string
}

// child is a running program.
type child struct {
	program
	*process.Process
	// wanted is closed, by wantEnd, when its end is expected.
	wanted  chan struct{}
	wantEnd sync.Once
}

func startProgram(binDir, logDir string, p program) (*child, error) {
	if path := cmp.Or(p.path, p.name); filepath.Base(path) == path {
		p.path = filepath.Join(binDir, path)
	}
	started, err := process.Start(process.Command{
		Name:    p.name,
		Path:    p.path,
		Args:    p.args,
		Env:     append(baseEnv(), p.env...),
		LogFile: filepath.Join(logDir, p.name+".log"),
	})
	if err != nil {
		return nil, err
	}
	return &child{program: p, Process: started, wanted: make(chan struct{})}, nil
}

func baseEnv() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "GORACE"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// awaitReady polls until the child is ready. It returns early, with the end of its log, when the
// child exits.
func (c *child) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		err := c.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-c.Done():
			return c.ended()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w; its log ends with:\n%s", c.name, err, c.LogTail())
		case <-tick.C:
		}
	}
}

// dial returns an error when nothing accepts connections at addr.
func dial(ctx context.Context, addr string) error {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// ended is the error of a child that exited unexpectedly.
func (c *child) ended() error {
	if err := c.Wait(); err != nil {
		return fmt.Errorf("%s ended: %w", c.name, err)
	}
	return fmt.Errorf("%s ended by itself; its log ends with:\n%s", c.name, c.LogTail())
}

func (c *child) ready(ctx context.Context) error {
	if c.ops == "" {
		return dial(ctx, c.listens)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.ops+"/readyz", nil)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	why, err := io.ReadAll(io.LimitReader(resp.Body, 1024))
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return errors.Join(fmt.Errorf("/readyz returns %s: %s", resp.Status, why), err)
}
