package fault

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/external"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/relay"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// programs records the calls.
type programs struct {
	mu    sync.Mutex
	calls []string
	err   error
}

func (p *programs) record(what string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, what)
	return p.err
}

func (p *programs) Kill(name string) error                       { return p.record("kill " + name) }
func (p *programs) AwaitReady(_ context.Context, n string) error { return p.record("await " + n) }
func (p *programs) Signal(name string, sig os.Signal) error {
	return p.record(sig.String() + " " + name)
}
func (p *programs) PID(string) (int, error) { return 0, p.err }
func (p *programs) Driver() string          { return "metacontroller" }
func (p *programs) CloseTarget() error      { return p.record("close target") }
func (p *programs) OpenTarget() error       { return p.record("open target") }
func (p *programs) Revive(name string) error {
	return errors.Join(p.record("revive "+name), stack.ErrRuns)
}

func newLab(t *testing.T) (*Lab, *programs) {
	t.Helper()
	recorder, err := history.Start(filepath.Join(t.TempDir(), "history"), clock.RealClock{}, history.Begin{})
	require.NoError(t, err)
	f, err := fleet.New(fleet.Config{
		Kube: &rest.Config{Host: "http://127.0.0.1:1"}, Namespace: "default", Provider: "local", CloudProvider: "cloud",
		ExternalIP: controlplanetest.Addr(), Sites: external.Sites{Real: "127.0.0.1:1"}, External: 10, Pods: 5, VMs: 5, Recorder: recorder,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, f.Close())
		assert.NoError(t, recorder.Close())
	})
	p := &programs{}
	return &Lab{Programs: p, Fleet: f, PodRoot: t.TempDir(), VMRoot: t.TempDir()}, p
}

// inject injects and heals.
func inject(t *testing.T, f Inject) {
	t.Helper()
	heal, err := f(t.Context())
	require.NoError(t, err)
	require.NoError(t, heal(t.Context()))
}

func TestEveryStepHasAFault(t *testing.T) {
	l, _ := newLab(t)
	p, err := plan.New(plan.Config{Seed: 1, Length: plan.Least, External: l.Fleet.External(), Pods: l.Fleet.Pods(), VMs: l.Fleet.VMs()})
	require.NoError(t, err)
	for _, s := range p.Steps() {
		f, err := l.New(s)
		if s.Kind == plan.Act {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err, s.String())
		assert.NotEmpty(t, f.Window.Family, s.String())
		assert.NotEmpty(t, f.Window.Subject, s.String())
	}
	for _, kind := range []history.Family{history.SlowHooks, history.Compute, history.ProxyTruth} {
		for _, subject := range []string{"external-001", "pod-001"} {
			_, err := l.New(plan.Step{Kind: kind, Subject: subject, Variant: "nonsense"})
			assert.ErrorContains(t, err, "no fault \"nonsense\"")
		}
	}
}

func TestKillAndFreeze(t *testing.T) {
	l, p := newLab(t)
	for subject, program := range map[string]string{
		plan.APIServer: "kube-apiserver", plan.Metacontroller: "metacontroller", plan.Etcd: "etcd", plan.Node: "node", plan.Cloud: "cloud",
	} {
		p.calls = nil
		inject(t, l.kill(subject))
		inject(t, l.freeze(subject))
		assert.Equal(t, []string{
			"kill " + program, "revive " + program, "await " + program, "stopped (signal) " + program, "continued " + program,
		}, p.calls)
	}
	p.err = os.ErrProcessDone
	_, err := l.freeze(plan.Etcd)(t.Context())
	assert.ErrorIs(t, err, os.ErrProcessDone, "nothing is frozen")
}

func TestTarget(t *testing.T) {
	l, p := newLab(t)
	inject(t, l.target)
	assert.Equal(t, []string{"close target", "open target"}, p.calls)
}

func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listen := func() net.Listener {
		ln, err := net.Listen("unix", path)
		require.NoError(t, err)
		ln.(*net.UnixListener).SetUnlinkOnClose(false)
		t.Cleanup(func() { _ = ln.Close() })
		return ln
	}
	dial := func() error {
		conn, err := net.Dial("unix", path)
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	f := (&Lab{Socket: path}).socket
	_, err := f(t.Context())
	require.Error(t, err, "there is none")
	first := listen()
	heal, err := f(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, dial(), os.ErrNotExist)
	require.NoError(t, heal(t.Context()))
	require.NoError(t, dial())

	heal, err = f(t.Context())
	require.NoError(t, err)
	require.NoError(t, first.Close())
	listen() // the adapter was started again
	require.NoError(t, heal(t.Context()))
	require.NoError(t, dial(), "its new socket is left alone")
	assert.NoFileExists(t, path+".away")
}

func TestHooks(t *testing.T) {
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer hook.Close()
	l, _ := newLab(t)
	var err error
	l.Relay, err = relay.Start("127.0.0.1", strings.TrimPrefix(hook.URL, "http://"))
	require.NoError(t, err)
	defer func() { assert.NoError(t, l.Relay.Close()) }()
	status := func() int {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Post("http://"+l.Relay.Addr(), "", nil)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	heal, err := l.hooks(plan.HooksFail)(t.Context())
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, status())
	require.NoError(t, heal(t.Context()))
	assert.Equal(t, http.StatusOK, status())
}

func TestComputeVariants(t *testing.T) {
	s := gcestandin.New(gcestandin.Options{})
	srv := httptest.NewServer(s.Handler())
	defer srv.Close()
	l, _ := newLab(t)
	l.ComputeURL = srv.URL
	list := func() (string, error) {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get(srv.URL + "/compute/v1/projects/demo/aggregated/instances")
		if err != nil {
			return "", err
		}
		return resp.Status, resp.Body.Close()
	}
	for _, variant := range []string{
		plan.ComputeQuota, plan.ComputeStockout, plan.ComputePermanent, plan.ComputeTransient, plan.ComputeRateLimit,
		plan.ComputeDropRequest, plan.ComputeDropAnswer, plan.ComputeNeverEnds, plan.ComputeSlow, plan.ComputeNoList,
		plan.ComputeZoneGone, plan.ComputeZoneLate, plan.ComputeZoneSilent,
	} {
		inject(t, l.compute(variant, l.zone(3)))
		status, err := list()
		require.NoError(t, err, "%s is over", variant)
		assert.Equal(t, "200 OK", status, variant)
	}
	heal, err := l.compute(plan.ComputeTransient, l.zone(0))(t.Context())
	require.NoError(t, err)
	status, err := list()
	require.NoError(t, err)
	assert.Equal(t, "503 Service Unavailable", status)
	require.NoError(t, heal(t.Context()))
	require.ErrorContains(t, l.control(t.Context(), http.MethodPut, "/control/zones/nowhere", map[string]any{"mode": ""}), "no zone")
}

func TestExternalProxy(t *testing.T) {
	l, _ := newLab(t)
	f, err := l.New(plan.Step{Kind: history.ProxyTruth, Subject: "external-001", Variant: plan.ProxyDie})
	require.NoError(t, err)
	assert.Equal(t, "default/external-001", f.Window.Subject)
	inject(t, f.Inject)
}

func TestProxyWithoutInstance(t *testing.T) {
	l, _ := newLab(t)
	for _, s := range []plan.Step{
		{Kind: history.ProxyTruth, Subject: "pod-001", Variant: plan.ProxyDie}, {Kind: history.Terminated, Subject: "vm-001", Variant: plan.InstanceRemove},
	} {
		f, err := l.New(s)
		require.NoError(t, err)
		_, err = f.Inject(t.Context())
		assert.ErrorContains(t, err, "has no instance now")
	}
}

func TestProcessesAreFoundByFolder(t *testing.T) {
	l, _ := newLab(t)
	for _, p := range []*v1alpha1.Proxy{
		{Status: v1alpha1.ProxyStatus{ProviderID: "default/pod", InstanceID: "u"}},
		{Status: v1alpha1.ProxyStatus{ProviderID: "zones/z/instances/vm", InstanceID: "7"}},
	} {
		dir := filepath.Join(l.PodRoot, "pod-u", "run")
		if p.Status.InstanceID == "7" {
			dir = filepath.Join(l.VMRoot, "vm-7")
		}
		require.NoError(t, os.MkdirAll(dir, 0o700))
		require.NoError(t, os.MkdirAll(filepath.Join(l.PodRoot, "pod-uu"), 0o700))
		_, err := l.processes(p)
		require.ErrorContains(t, err, "no process works in")
		cmd, other := exec.Command("/bin/sleep", "300"), exec.Command("/bin/sleep", "300")
		cmd.Dir, other.Dir = dir, filepath.Join(l.PodRoot, "pod-uu")
		for _, c := range []*exec.Cmd{cmd, other} {
			c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			require.NoError(t, c.Start())
			t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
		}
		var pids []int
		require.Eventually(t, func() bool { pids, err = l.processes(p); return err == nil }, 10*time.Second, 10*time.Millisecond)
		assert.Equal(t, []int{cmd.Process.Pid}, pids)
	}
}

func TestAwaitServingEndsWithTheInstance(t *testing.T) {
	l, _ := newLab(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	n, err := strconv.ParseInt(port, 10, 32)
	require.NoError(t, err)
	p := &v1alpha1.Proxy{Status: v1alpha1.ProxyStatus{IP: "127.0.0.1", Port: int32(n), InstanceID: "u"}}
	p.Name = "pod-001"
	l.awaitServing(t.Context(), p) // it serves
	require.NoError(t, ln.Close())
	l.awaitServing(t.Context(), p) // it does not, and the Proxy is unknown
}
