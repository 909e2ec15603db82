package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcp"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
)

// project is shared by several adapters, each with an endpoint of its own, so that
// their requests can be counted.
type project struct {
	t   *testing.T
	gce *gcestandin.Server

	// trap is set before a process starts.
	trap *trap

	mu        sync.Mutex
	mutations map[string][]time.Time
	alive     map[string]string
	doubles   []string
}

func newProject(t *testing.T) *project {
	t.Helper()
	return newProjectOf(t, clock.RealClock{})
}

// newProjectOf returns a project whose VMs use clk.
func newProjectOf(t *testing.T, clk clock.PassiveClock) *project {
	t.Helper()
	w := &project{t: t, mutations: map[string][]time.Time{}, alive: map[string]string{}}
	w.gce = gcestandin.New(gcestandin.Options{
		OnChange: w.watch, Clock: clk,
		Timing: gcestandin.Timing{Provisioning: 500 * time.Millisecond, Insert: 500 * time.Millisecond, Delete: 500 * time.Millisecond},
	})
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		assert.Empty(t, w.doubles, "a UID had two VMs")
	})
	return w
}

func (w *project) watch(c gcestandin.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	uid := c.VM.Labels[gcp.LabelUID]
	if c.Kind == "removed" {
		delete(w.alive, c.VM.ID)
	}
	if c.Kind != "inserted" {
		return
	}
	for _, other := range w.alive {
		if other == uid {
			w.doubles = append(w.doubles, uid)
		}
	}
	w.alive[c.VM.ID] = uid
}

// endpoint is the project's URL for one adapter.
func (w *project) endpoint(who string) string {
	h := w.gce.Handler()
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.mu.Lock()
			w.mutations[who] = append(w.mutations[who], time.Now())
			w.mu.Unlock()
		}
		w.trap.serve(h, rw, r)
	}))
	w.t.Cleanup(srv.Close)
	w.t.Cleanup(srv.CloseClientConnections)
	return srv.URL
}

// by returns how many mutations that adapter has sent.
func (w *project) by(who string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mutations[who])
}

// child is an adapter as a child process.
type child struct {
	*adapter.Client
	t   *testing.T
	cmd *exec.Cmd
	out programtest.Output
}

// adapterArgs are the arguments of an adapter of this project.
func (w *project) adapterArgs(who, socket string, more ...string) []string {
	args := []string{
		"--socket", socket, "--installation", "inst", "--providers-config", providersFile(w.t, goodProviders),
		"--gcp-endpoint", w.endpoint(who), "--list-interval", "1s", "--ops-addr", "127.0.0.1:0",
		"--mutations-per-second", "4", "--mutations-burst", "1",
	}
	return append(args, more...)
}

func (w *project) start(who string, more ...string) *child {
	w.t.Helper()
	return w.startAt(filepath.Join(w.t.TempDir(), "s"), who, more...)
}

// startAt starts an adapter that listens on that socket.
func (w *project) startAt(socket, who string, more ...string) *child {
	w.t.Helper()
	c := &child{t: w.t, Client: adapter.NewClient(socket, 20*time.Second)}
	c.cmd = exec.Command(os.Args[0], w.adapterArgs(who, socket, more...)...)
	c.cmd.Env = []string{runMain + "=1"}
	c.cmd.Stderr = &c.out
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(w.t, c.cmd.Start())
	w.t.Cleanup(func() {
		c.Close()
		_ = c.cmd.Process.Signal(syscall.SIGCONT)
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		if w.t.Failed() {
			w.t.Logf("%s:\n%s", who, c.out.String())
		}
	})
	return c
}

func (c *child) signal(s os.Signal) { require.NoError(c.t, c.cmd.Process.Signal(s)) }

// kubeconfig returns the real API server, with our CRDs.
func kubeconfig(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	cp := server.Get(t)
	require.NoError(t, controlplane.InstallCRDs(t.Context(), cp.RESTConfig(), crd.Manifests()...))
	return cp
}

func request(n int) (string, adapter.PutRequest) {
	uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	return v1alpha1.InstanceName(types.UID(uid)), adapter.PutRequest{
		UID: uid, Namespace: "crawl", Proxy: fmt.Sprintf("p%d", n), SpecHash: "v1-aa", Port: 3128,
		Placement: v1alpha1.Placement{
			Zone: "europe-west1-b", MachineType: "e2-micro", Image: "squid-1", FallbackZones: []v1alpha1.Zone{"us-central1-a"},
		},
	}
}

// putAll sends a PUT for n instances and returns how many run. A standby adapter
// returns errors.
func (c *child) putAll(ctx context.Context, n int) (running int) {
	for i := range n {
		name, req := request(i)
		got, err := c.Put(ctx, "gcp-eu", name, req)
		if err == nil && got.State == adapter.StateRunning {
			running++
		}
	}
	return running
}

func (c *child) acts() bool {
	_, err := c.List(c.t.Context())
	return err == nil
}
