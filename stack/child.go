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
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/supervise"
)

const (
	stopGrace = 15 * time.Second // the shutdown timeout of one of our programs
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
	env     []string
	ops     string // the address of /readyz, "" for none
	metrics string // the address of /metrics, "" when it is ops
	listens string // the address that accepts connections when a program without ops is ready
}

// child is a program of ours that runs.
type child struct {
	program
	*supervise.Part
}

// newChild returns a program that is not started yet.
func (s *Stack) newChild(p program) *child {
	if path := cmp.Or(p.path, p.name); filepath.Base(path) == path {
		p.path = s.cfg.program(path)
	}
	c := &child{program: p, Part: &supervise.Part{Group: s.group, Command: process.Command{
		Name:    p.name,
		Path:    p.path,
		Args:    append(p.args, s.cfg.Flags[p.name]...),
		Env:     append(baseEnv(), p.env...),
		LogFile: filepath.Join(s.logDir, p.name+".log"),
	}}}
	c.Ended = func(err error) { s.ended(c.Part, err) }
	return c
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
	err := supervise.Until(ctx, readyPoll, c.Exited, c.ready)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%s is not ready: %w; its log ends with:\n%s", c.name, err, c.Current().LogTail())
	}
	return err
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
