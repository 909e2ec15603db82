package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/testwait"
)

// trap kills a process at one of its calls.
type trap struct {
	// op of the call; skip is how many of them succeed before.
	op   string
	skip int
	// after: Compute handles the request, and its response is lost.
	after bool

	mu     sync.Mutex
	victim *child
	sprung bool
}

func opOf(r *http.Request) string {
	switch {
	case r.Method == http.MethodPost:
		return "insert"
	case r.Method == http.MethodDelete:
		return "delete"
	case strings.Contains(r.URL.Path, "/operations/"):
		return "operation"
	case strings.Contains(r.URL.Path, "/aggregated/"):
		return "list"
	}
	return "get"
}

// springs reports whether to kill the process at this request.
func (t *trap) springs(r *http.Request) bool {
	if t == nil || opOf(r) != t.op {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sprung || t.victim == nil {
		return false
	}
	t.skip--
	t.sprung = t.skip < 0
	return t.sprung
}

func (t *trap) serve(h http.Handler, w http.ResponseWriter, r *http.Request) {
	if !t.springs(r) {
		h.ServeHTTP(w, r)
		return
	}
	if t.after {
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	_ = t.victim.cmd.Process.Signal(syscall.SIGKILL)
	panic(http.ErrAbortHandler)
}

func (t *trap) setVictim(c *child) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.victim = c
}

func (t *trap) hasSprung() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sprung
}

// The real process is killed with SIGKILL at each kind of call of an insert and a
// delete, and a successor starts on the same socket. All cases run at once, since they
// mostly wait.
func TestKilledAtEveryCallOfAnInsertAndADelete(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	defer all.Wait()
	for _, tt := range []struct {
		op       string
		skip     int
		deletion bool
	}{
		{op: "list"}, {op: "insert"}, {op: "operation"},
		{op: "get", deletion: true}, {op: "delete", deletion: true},
		{op: "operation", skip: 1, deletion: true}, {op: "get", skip: 1, deletion: true},
	} {
		for _, after := range []bool{false, true} {
			all.Go(func() {
				t.Run(fmt.Sprintf("%s %d after=%v", tt.op, tt.skip, after), func(t *testing.T) {
					killedOnce(t, &trap{op: tt.op, skip: tt.skip, after: after}, tt.deletion)
				})
			})
		}
	}
}

// life is the life of one instance, with a process that is killed and its successor.
type life struct {
	t      *testing.T
	w      *project
	clock  *clocktesting.FakeClock
	socket string
	p      *child
}

// ask retries a call until its response is the wanted one, with the process that runs
// at that time. The VMs' clock advances with each retry, but stops before a trap at an
// operation, which would be done otherwise.
func (s *life) ask(what string, call func() (adapter.Instance, error), wanted func(adapter.Instance) bool) (got adapter.Instance) {
	s.t.Helper()
	trap := s.w.trap
	testwait.Eventually(s.t, what, func() bool {
		sprung := trap.hasSprung()
		if sprung && s.p == trap.victim {
			_ = s.p.cmd.Wait()
			s.p = s.w.startAt(s.socket, "second")
		}
		var err error
		got, err = call()
		if err == nil && (sprung || trap.op != "operation") {
			s.clock.Step(100 * time.Millisecond)
		}
		return err == nil && wanted(got)
	})

	return got
}

func killedOnce(t *testing.T, trap *trap, deletion bool) {
	clk := clocktesting.NewFakeClock(time.Now())
	w := newProjectOf(t, clk)
	w.trap = trap
	s := &life{t: t, w: w, clock: clk, socket: filepath.Join(t.TempDir(), "s")}
	s.p = w.startAt(s.socket, "first")
	trap.setVictim(s.p)
	name, req := request(1)
	made := s.ask("it runs", func() (adapter.Instance, error) {
		if trap.op == "operation" && deletion {
			clk.Step(time.Second)
		}
		return s.p.Put(t.Context(), "gcp-eu", name, req)
	}, func(got adapter.Instance) bool { return got.State == adapter.StateRunning })
	if !deletion {
		require.True(t, trap.hasSprung())
	}
	require.Len(t, w.gce.VMs(), 1)
	s.ask("it is gone", func() (adapter.Instance, error) {
		return s.p.Delete(t.Context(), "gcp-eu", name, req.UID, made.ProviderID)
	}, func(got adapter.Instance) bool {
		vms := len(w.gce.VMs())
		if got.State == adapter.StateAbsent {
			assert.Zero(t, vms, "reported absent")
		}
		// A successor that has never read it waits for the list lag before it
		// confirms.
		return vms == 0 && trap.hasSprung()
	})
	assert.NotSame(t, trap.victim, s.p)
}
