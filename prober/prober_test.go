package prober

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/outage"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// cluster is the real API server that the tests of this package share, with a
// connection that can be cut.
type cluster struct {
	t       testing.TB
	config  *rest.Config
	objects dynamic.ResourceInterface
	line    *line
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	cp := shared.Get(t)
	crd, err := os.ReadFile("../manifests/crd/crawl.example.com_proxyprobes.yaml")
	require.NoError(t, err)
	require.NoError(t, controlplane.InstallCRDs(t.Context(), cp.RESTConfig(), crd))
	client, err := dynamic.NewForConfig(cp.RESTConfig())
	require.NoError(t, err)
	c := &cluster{t: t, config: cp.RESTConfig(), objects: client.Resource(v1alpha1.ProxyProbeResource()).Namespace("default"), line: &line{}}
	if _, benchmark := t.(*testing.B); !benchmark { // whose many objects go with the API server
		t.Cleanup(c.clear)
	}
	return c
}

// clear deletes the objects of the test.
func (c *cluster) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	assert.NoError(c.t, c.objects.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// create creates a ProxyProbe and returns it as stored.
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

// startAs runs a prober with a name, a shard and a connection to the API server.
func (c *cluster) startAs(s *scene, holder string, shard v1alpha1.Shard, line *line) *process {
	c.t.Helper()
	p := &process{registry: prometheus.NewRegistry(), logs: &programtest.Output{}}
	cfg := rest.CopyConfig(c.config)
	cfg.Dial = line.dial
	var err error
	p.Prober, err = New(Config{
		API: cfg, Namespace: "default", SystemNamespace: "kube-system", Holder: holder,
		Shard: shard, Workers: 4, Roots: s.ca.Pool(), Outage: s.outage, Registry: p.registry,
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

// line is the connection to the API server.
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

// cut closes all connections and refuses new ones.
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

// waited is a timeout that some tests wait for. On a busy machine only a proxy that hangs
// reaches it.
const waited = 3 * time.Second

// swift is the scene's ProxyProbe at the shortest interval that the API allows.
func (s *scene) swift() *v1alpha1.ProxyProbe {
	hc := s.probe.Spec.HealthCheck
	hc.Interval = metav1.Duration{Duration: time.Second}
	hc.Timeout = metav1.Duration{Duration: waited}
	hc.FailureThreshold = 2
	return s.probe
}

// refuse is a behaviour that fails immediately.
func refuse() probetest.Behaviour { return probetest.Answer(403) }

func TestVerdictsReachTheAPIServer(t *testing.T) {
	c, s := newCluster(t), newScene(t, "flips")
	c.start(s)
	created := time.Now().Truncate(time.Second)
	c.create(s.swift())

	st := c.becomes("flips", healthy, "ProbeSucceeded")
	assert.Equal(t, "instance-1", st.InstanceID)
	assert.Equal(t, "target.invalid answered 204 through the proxy", st.Message)
	assert.NotNil(t, st.LatencyMillis)
	assert.Equal(t, int64(1), st.ObservedGeneration)
	assert.False(t, st.LastProbeTime.Time.Before(created))
	assert.False(t, st.LastTransitionTime.Time.Before(created))

	s.proxy.Set(probetest.Hang)
	st = c.becomes("flips", unhealthy, "ConnectTimeout")
	assert.GreaterOrEqual(t, *st.LatencyMillis, waited.Milliseconds()-1, "the timeout")
	s.proxy.Set(refuse())
	s.proxy.Set(s.works)
	c.becomes("flips", healthy, "ProbeSucceeded")
}

func TestStatusIsNotWrittenWithoutNeed(t *testing.T) {
	c, s := newCluster(t), newScene(t, "steady")
	c.start(s)
	c.create(s.swift())
	c.becomes("steady", healthy, "ProbeSucceeded")
	version, seen := c.get("steady").ResourceVersion, s.proxy.Seen()
	eventually(t, func() bool { return s.proxy.Seen() >= seen+3 }, "more probes")
	assert.Equal(t, version, c.get("steady").ResourceVersion)
}

func TestRestartKeepsTheVerdict(t *testing.T) {
	c, s := newCluster(t), newScene(t, "kept")
	first := c.start(s)
	c.create(s.swift())
	c.becomes("kept", healthy, "ProbeSucceeded")
	first.stop()
	version := c.get("kept").ResourceVersion
	s.proxy.Alternate(refuse(), s.works)

	seen := s.proxy.Seen()
	c.start(s)
	eventually(t, func() bool { return s.proxy.Seen() >= seen+3 }, "probed on after one failure")
	assert.Equal(t, version, c.get("kept").ResourceVersion, "one failure is not a run")
	s.proxy.Set(refuse())
	c.becomes("kept", unhealthy, "ConnectRefused")
}

// A proxy fails while the API server is down: the verdict does not flap, and is written
// when the API server is back, before the next probe.
func TestAPIServerOutageLosesNoVerdict(t *testing.T) {
	c, s := newCluster(t), newScene(t, "outage")
	p := c.start(s)
	c.create(s.swift())
	c.becomes("outage", healthy, "ProbeSucceeded")
	version := c.get("outage").ResourceVersion

	c.line.cut()
	seen := s.proxy.Seen()
	eventually(t, func() bool { return s.proxy.Seen() >= seen+2 }, "more probes")
	s.proxy.Set(refuse())
	eventually(t, func() bool { return p.runner.verdicts()[unhealthy] == 1 }, "known")
	assert.Equal(t, version, c.get("outage").ResourceVersion)
	c.line.mend()
	c.becomes("outage", unhealthy, "ConnectRefused")
}

func TestPatchOfADeletedProxyProbeIsRejected(t *testing.T) {
	c, s := newCluster(t), newScene(t, "namesake")
	first := c.create(s.swift())
	client, err := NewClient(c.config)
	require.NoError(t, err)
	patch := func(key types.NamespacedName, uid types.UID, st v1alpha1.ProxyProbeStatus) error {
		_, err := client.PatchStatus(t.Context(), key, uid, st)
		return err
	}
	key := types.NamespacedName{Namespace: "default", Name: "namesake"}
	st := v1alpha1.ProxyProbeStatus{InstanceID: "instance-1", Verdict: unhealthy, Reason: "DialFailed"}
	require.NoError(t, patch(key, first.UID, st))
	assert.Equal(t, st, c.get("namesake").Status)
	st.Verdict = healthy
	require.NoError(t, patch(key, first.UID, st), "over an older status")
	assert.Equal(t, healthy, c.get("namesake").Status.Verdict)

	require.NoError(t, c.objects.Delete(t.Context(), "namesake", metav1.DeleteOptions{}))
	require.Error(t, patch(key, first.UID, st), "gone")
	second := c.create(s.swift())
	require.Error(t, patch(key, first.UID, st), "another object")
	assert.Empty(t, c.get("namesake").Status)
	assert.Equal(t, second.ResourceVersion, c.get("namesake").ResourceVersion)

	st.Verdict = "Perhaps"
	require.ErrorContains(t, patch(key, second.UID, st), "Perhaps", "the schema holds")
}

const canary = "CANARY-91be"

// secret creates labelled credentials with the canary in the username.
func (c *cluster) secret(password string) {
	c.t.Helper()
	client, err := kubernetes.NewForConfig(c.config)
	require.NoError(c.t, err)
	secrets := client.CoreV1().Secrets("default")
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "vendor", Labels: map[string]string{v1alpha1.LabelCredentials: "true"}},
		StringData: map[string]string{"username": "crawler-" + canary, "password": password},
	}
	_, err = secrets.Create(c.t.Context(), s, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(c.t.Context(), s, metav1.UpdateOptions{})
	} else {
		c.t.Cleanup(func() {
			assert.NoError(c.t, secrets.Delete(context.Background(), s.Name, metav1.DeleteOptions{}))
		})
	}
	require.NoError(c.t, err)
}

func TestCredentialsAreUsedAndNeverShown(t *testing.T) {
	c := newCluster(t)
	ca := probetest.NewCA(t)
	target := probetest.ServeTLS(t, ca.Certificate(t, targetName, time.Now().Add(time.Hour)), probetest.Status(204))
	asks := func(password string) probetest.Behaviour {
		return probetest.Forward(probetest.To(target.Addr), probetest.RequireBasic("crawler-"+canary, password))
	}
	s := newSceneAt(t, "secret", ca, asks(canary))
	s.probe.Spec.CredentialsRef = &v1alpha1.CredentialsRef{Name: "vendor"}

	p := c.start(s)
	c.create(s.swift())
	st := c.becomes("secret", unhealthy, "CredentialsRefused")
	assert.Contains(t, st.Message, "secret default/vendor does not exist")
	c.secret(canary)
	c.becomes("secret", healthy, "ProbeSucceeded")

	s.proxy.Set(asks("rotated"))
	c.becomes("secret", unhealthy, "ProxyAuthRefused")
	c.secret("rotated")
	c.becomes("secret", healthy, "ProbeSucceeded")

	p.stop()
	for what, text := range map[string]string{"logs": p.logs.String(), "metrics": dump(t, p), "objects": c.everything()} {
		require.Contains(t, text, "secret", what)
		assert.NotContains(t, text, canary, what)
		for _, password := range []string{canary, "rotated"} {
			assert.NotContains(t, text, base64.StdEncoding.EncodeToString([]byte("crawler-"+canary+":"+password)), what)
		}
	}
}

func dump(t *testing.T, p *process) string {
	t.Helper()
	families, err := p.registry.Gather()
	require.NoError(t, err)
	text := ""
	for _, f := range families {
		text += f.String() + "\n"
	}
	return text
}

// everything returns all ProxyProbes of the test as JSON.
func (c *cluster) everything() string {
	c.t.Helper()
	list, err := c.objects.List(c.t.Context(), metav1.ListOptions{})
	require.NoError(c.t, err)
	b, err := json.Marshal(list)
	require.NoError(c.t, err)
	return string(b)
}

// A target goes down behind a working proxy: the verdict is kept, the status has the
// reason, and the reason ends when the target is back at the same address.
func TestTargetGoesDownAndComesBack(t *testing.T) {
	c, ca := newCluster(t), probetest.NewCA(t)
	host := controlplanetest.Addr() // no other process takes its ports while the target is down
	cert := ca.Certificate(t, host, time.Now().Add(time.Hour))
	target := probetest.ServeTLSOn(t, net.JoinHostPort(host, "0"), cert, probetest.Echo)
	s := newSceneAt(t, "held", ca, probetest.Forward(func(authority string) (string, bool) { return authority, true }))
	hc := s.swift().Spec.HealthCheck
	hc.ProbeURL, hc.ExitProof = "https://"+target.Addr+"/", &v1alpha1.ExitProof{}
	s.outage = outage.Config{DirectCheck: true, TargetHold: time.Hour}
	p := c.start(s)
	c.create(s.probe)
	st := c.becomes("held", healthy, "ProbeSucceeded")
	assert.Equal(t, "127.0.0.1", st.ExitIP)
	eventually(t, func() bool {
		p.runner.mu.Lock()
		defer p.runner.mu.Unlock()
		return p.runner.outage.Targets()[target.Addr].Proven
	}, "a direct check worked")

	target.Close()
	st = c.becomes("held", healthy, "ProbeTargetDown")
	assert.Contains(t, st.Message, "the direct check of "+target.Addr+" fails too: dial: connection refused")
	seen := s.proxy.Seen()
	eventually(t, func() bool { return s.proxy.Seen() >= seen+4 }, "more probes")
	assert.Equal(t, healthy, c.get("held").Status.Verdict)

	probetest.ServeTLSOn(t, target.Addr, cert, probetest.Echo)
	c.becomes("held", healthy, "ProbeSucceeded")

	s.proxy.Set(probetest.Hang) // now it is the proxy
	c.becomes("held", unhealthy, "ConnectTimeout")
}
