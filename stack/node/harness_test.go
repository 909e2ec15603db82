package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// env is shared by the tests of this package.
var env struct {
	controlPlane controlplanetest.Shared
	dir          string // for programs
}

func TestMain(m *testing.M) {
	var err error
	if env.dir, err = os.MkdirTemp("", "node-test-*"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := errors.Join(env.controlPlane.Stop(), os.RemoveAll(env.dir), goleak.Find()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// scripted is a launcher whose program runs the "configuration" as a shell script.
func scripted(t *testing.T) *Launcher {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n. \"$5\"\n"), 0o755))
	return &Launcher{Name: "script", Path: path}
}

// builtConnectProxy returns the built-in proxy's program.
func builtConnectProxy(t *testing.T) string {
	t.Helper()
	require.NoError(t, programtest.Build(env.dir, "../../cmd/connectproxy"))
	return filepath.Join(env.dir, "connectproxy")
}

// within waits for a condition that other processes cause.
func within(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 30*time.Second, 10*time.Millisecond, what)
}

// background runs f until the test ends and then waits for it.
func background(t *testing.T, f func(context.Context)) context.CancelFunc {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	stop := func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// rig is a node on a real API server.
type rig struct {
	t      *testing.T
	client kubernetes.Interface
	cfg    Config
	node   *Node
	stop   context.CancelFunc
	// statusWrites counts the node's writes of Pod statuses that the API server accepted. It
	// rejects a write of a stale Pod, which is retried.
	statusWrites atomic.Int64
}

// newRig starts a node with this launcher. The Pods that are left at the end of the test are
// force-deleted.
func newRig(t *testing.T, launcher *Launcher, subnet string) *rig {
	t.Helper()
	return newRigAt(t, launcher, subnet, clock.RealClock{})
}

// newRigAt is newRig on another clock.
func newRigAt(t *testing.T, launcher *Launcher, subnet string, clk clock.Clock) *rig {
	t.Helper()
	r := &rig{t: t}
	config := env.controlPlane.Get(t).RESTConfig()
	var err error
	r.client, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counter{next: next, writes: &r.statusWrites} })
	counted, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	r.cfg = Config{
		Name:     "node-" + strings.ToLower(t.Name()),
		Subnet:   netip.MustParsePrefix(subnet),
		Root:     rootFolder(t),
		Launcher: launcher,
		Client:   counted,
		Clock:    clk,
		Log:      slog.New(slog.DiscardHandler),
	}
	r.start()
	t.Cleanup(r.forceDeleteAll)
	return r
}

// rootFolder is a folder that every user can enter, unlike t.TempDir.
func rootFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "node-root-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o711))
	return filepath.Join(dir, "pods")
}

type counter struct {
	next   http.RoundTripper
	writes *atomic.Int64
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusOK && r.Method != http.MethodGet && strings.HasSuffix(r.URL.Path, "/status") {
		c.writes.Add(1)
	}
	return resp, err
}

func (r *rig) start() {
	r.t.Helper()
	var err error
	r.node, err = New(r.cfg)
	require.NoError(r.t, err)
	r.stop = background(r.t, func(ctx context.Context) {
		if err := r.node.Run(ctx); err != nil {
			r.t.Error(err)
		}
	})
	within(r.t, "the node is ready", func() bool { return r.node.Ready() == nil })
}

func (r *rig) create(pod *corev1.Pod) *corev1.Pod {
	r.t.Helper()
	pod, err := r.client.CoreV1().Pods("default").Create(context.Background(), pod, metav1.CreateOptions{})
	require.NoError(r.t, err)
	return pod
}

func (r *rig) get(name string) (*corev1.Pod, bool) {
	r.t.Helper()
	pod, err := r.client.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, false
	}
	require.NoError(r.t, err)
	return pod, true
}

func (r *rig) delete(name string, graceSeconds int64) {
	r.t.Helper()
	require.NoError(r.t, r.client.CoreV1().Pods("default").Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(graceSeconds)}))
}

// await returns the Pod once condition holds.
func (r *rig) await(name, what string, condition func(*corev1.Pod) bool) *corev1.Pod {
	r.t.Helper()
	var pod *corev1.Pod
	within(r.t, name+": "+what, func() bool {
		var found bool
		pod, found = r.get(name)
		return found && condition(pod)
	})
	return pod
}

func (r *rig) awaitReady(name string) *corev1.Pod {
	r.t.Helper()
	return r.await(name, "ready", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready
	})
}

func (r *rig) awaitGone(name string) {
	r.t.Helper()
	within(r.t, name+": gone", func() bool { _, found := r.get(name); return !found })
}

func (r *rig) forceDeleteAll() {
	err := r.client.CoreV1().Pods("default").DeleteCollection(context.Background(), metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, metav1.ListOptions{})
	require.NoError(r.t, err)
}

func (r *rig) folder(pod *corev1.Pod) string { return string(newPodDir(r.cfg.Root, pod.UID)) }
