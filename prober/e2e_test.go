package prober

import (
	"context"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
)

// cluster is a namespace of its own on the real API server that the tests of
// this package share, with a connection to it that can be cut.
type cluster struct {
	t       *testing.T
	config  *rest.Config
	objects dynamic.ResourceInterface
	line    *line
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	cp := shared.Get(t)
	crd, err := os.ReadFile("../manifests/crd/crawl.example.com_proxyprobes.yaml")
	require.NoError(t, err)
	require.NoError(t, controlplane.InstallCRDs(t.Context(), cp.RESTConfig(), crd))
	client, err := dynamic.NewForConfig(cp.RESTConfig())
	require.NoError(t, err)
	c := &cluster{t: t, config: cp.RESTConfig(), objects: client.Resource(v1alpha1.ProxyProbeResource()).Namespace("default"), line: &line{}}
	t.Cleanup(c.clear)
	return c
}

// clear deletes what the test has made.
func (c *cluster) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	assert.NoError(c.t, c.objects.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// create stores a ProxyProbe and returns it as stored.
func (c *cluster) create(p *v1alpha1.ProxyProbe) *v1alpha1.ProxyProbe {
	c.t.Helper()
	p = p.DeepCopy()
	p.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "ProxyProbe"}
	p.ObjectMeta = metav1.ObjectMeta{Name: p.Name}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	require.NoError(c.t, err)
	delete(content, "status")
	stored, err := c.objects.Create(c.t.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	return c.typed(stored)
}

func (c *cluster) get(name string) *v1alpha1.ProxyProbe {
	c.t.Helper()
	stored, err := c.objects.Get(c.t.Context(), name, metav1.GetOptions{})
	require.NoError(c.t, err)
	return c.typed(stored)
}

func (c *cluster) typed(u *unstructured.Unstructured) *v1alpha1.ProxyProbe {
	c.t.Helper()
	p := &v1alpha1.ProxyProbe{}
	require.NoError(c.t, v1alpha1.FromUnstructured(u.Object, p))
	return p
}

// becomes waits until the verdict and its reason are in the API server.
func (c *cluster) becomes(name string, v v1alpha1.Verdict, reason string) v1alpha1.ProxyProbeStatus {
	c.t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		st := c.get(name).Status
		if st.Verdict == v && st.Reason == reason {
			return st
		}
		require.True(c.t, time.Now().Before(until), "want %s/%s, have %+v", v, reason, st)
	}
}

// process is a running prober.
type process struct {
	*Prober
	registry *prometheus.Registry
	logs     *programtest.Output
	stop     func()
}

// start runs a prober on the cluster until the test ends.
func (c *cluster) start(s *scene) *process {
	c.t.Helper()
	return c.startAs(s, "prober-of-the-test", v1alpha1.Shard{Count: 1}, c.line)
}

// startAs runs a prober with a name, a shard and a line to the API server.
func (c *cluster) startAs(s *scene, holder string, shard v1alpha1.Shard, line *line) *process {
	c.t.Helper()
	p := &process{registry: prometheus.NewRegistry(), logs: &programtest.Output{}}
	cfg := rest.CopyConfig(c.config)
	cfg.Dial = line.dial
	var err error
	p.Prober, err = New(Config{
		API: cfg, Namespace: "default", SystemNamespace: "kube-system", Holder: holder,
		Shard: shard, Workers: 4, Roots: s.ca.Pool(), Guard: s.guard, Registry: p.registry,
		Log:   slog.New(slog.NewTextHandler(p.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		lease: leaseTimes{duration: 6 * time.Second, deadline: 4 * time.Second, retry: 200 * time.Millisecond, grace: time.Minute},
	})
	require.NoError(c.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(c.t, <-done)
		line.cut()
		line.mend()
	})
	c.t.Cleanup(p.stop)
	eventually(c.t, func() bool { return p.Ready() == nil }, "ready")
	return p
}

// line is the way to the API server.
type line struct {
	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

func (l *line) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return nil, &net.OpError{Op: "dial", Net: network, Err: net.ErrClosed}
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		l.conns = append(l.conns, c)
	}
	return c, err
}

// cut ends all connections and lets none come up.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

func (l *line) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = false
}

// waited is a timeout that some tests wait for, yet so long that nothing but what
// hangs meets it on a busy machine.
const waited = 3 * time.Second

// swift is the scene's ProxyProbe at the shortest interval that the API allows.
func (s *scene) swift() *v1alpha1.ProxyProbe {
	hc := s.probe.Spec.HealthCheck
	hc.Interval = metav1.Duration{Duration: time.Second}
	hc.Timeout = metav1.Duration{Duration: waited}
	hc.FailureThreshold = 2
	return s.probe
}

// refuse is a behaviour that fails at once.
func refuse() probetest.Behaviour { return probetest.Answer(403) }
