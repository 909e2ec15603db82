package journal

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// childVariable has the test binary be a process that serves the store in the
// file that it names.
const childVariable = "PX_TEST_JOURNAL_CHILD"

const childProxies, childMaxLeases = 150, 3

// call is one line that a client sends to the process.
type call struct {
	Op      string // acquire, release, report, get, usage, ready, limit
	ID      string
	Request lease.Request
	Report  lease.Report
	Limit   uint64 // bytes that a file may have
}

// answer is the line that comes back.
type answer struct {
	Lease       lease.Lease
	Active      []int
	Error       string
	Unavailable bool
	NoMatch     *lease.Stats
}

// child serves until it is killed.
func child(path string) int {
	signal.Ignore(syscall.SIGXFSZ) // so that a write beyond the limit is an error
	s, err := Open(Config{Path: path, Cooldown: time.Hour, Clock: clock.RealClock{}, Log: quiet()})
	if err != nil {
		fmt.Println("FAILED", err)
		return 1
	}
	offer(s, childProxies, childMaxLeases)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println("FAILED", err)
		return 1
	}
	fmt.Println("LISTENING", ln.Addr())
	for {
		conn, err := ln.Accept()
		if err != nil {
			return 1
		}
		go serveConn(s, conn)
	}
}

func serveConn(s *Store, conn net.Conn) {
	defer conn.Close()
	in, out := json.NewDecoder(bufio.NewReader(conn)), json.NewEncoder(conn)
	for {
		var c call
		if in.Decode(&c) != nil || out.Encode(serveCall(s, c)) != nil {
			return
		}
	}
}

func serveCall(s *Store, c call) (a answer) {
	ctx := context.Background()
	var err error
	switch c.Op {
	case "acquire":
		a.Lease, err = s.Acquire(ctx, c.Request)
	case "release":
		err = s.Release(ctx, c.ID)
	case "report":
		err = s.Report(ctx, c.ID, c.Report)
	case "get":
		a.Lease, err = s.Get(ctx, c.ID)
	case "renew":
		a.Lease, err = s.Renew(ctx, c.ID, c.Request.TTL)
	case "ready":
		err = s.Ready()
	case "usage":
		var u lease.Usage
		u, err = s.Usage(ctx)
		for _, n := range u.Active {
			a.Active = append(a.Active, n)
		}
	case "limit":
		limit := syscall.Rlimit{Cur: c.Limit, Max: ^uint64(0)}
		err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
	}
	var none *lease.NoMatchError
	if errors.As(err, &none) {
		a.NoMatch = &none.Stats
	}
	if err != nil {
		a.Error, a.Unavailable = err.Error(), errors.Is(err, lease.ErrUnavailable)
	}
	return a
}

// process is a child that runs.
type process struct {
	*testing.T
	cmd  *exec.Cmd
	addr string
}

func startChild(t *testing.T, path string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+path)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	p := &process{T: t, cmd: cmd}
	t.Cleanup(p.kill)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	n, err := fmt.Sscanf(line, "LISTENING %s", &p.addr)
	require.True(t, err == nil && n == 1, line)
	return p
}

// kill is kill -9.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// client is a connection to the process.
type client struct {
	conn net.Conn
	in   *json.Decoder
}

func (p *process) dial() (*client, error) {
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		return nil, err
	}
	return &client{conn: conn, in: json.NewDecoder(bufio.NewReader(conn))}, nil
}

// ask returns an error when there is no answer.
func (c *client) ask(x call) (a answer, err error) {
	if err := json.NewEncoder(c.conn).Encode(x); err != nil {
		return a, err
	}
	err = c.in.Decode(&a)
	return a, err
}

// must wants an answer.
func (p *process) must(x call) answer {
	p.Helper()
	c, err := p.dial()
	require.NoError(p, err)
	defer c.conn.Close()
	a, err := c.ask(x)
	require.NoError(p, err)
	return a
}
