package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/testwait"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
)

// cluster has clients of a real API server that has our CRDs.
type cluster struct {
	*testing.T
	objects dynamic.Interface
	clients *kubernetes.Clientset
}

func realCluster(t *testing.T) *cluster {
	t.Helper()
	cp := server.Get(t)
	cfg := rest.CopyConfig(cp.RESTConfig())
	cfg.QPS = -1
	require.NoError(t, controlplane.InstallCRDs(t.Context(), cfg, crd.Manifests()...))
	objects, err := dynamic.NewForConfig(cfg)
	require.NoError(t, err)
	clients, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	return &cluster{T: t, objects: objects, clients: clients}
}

// namespace makes one for this test alone.
func (c *cluster) namespace() string {
	c.Helper()
	ns, err := c.clients.CoreV1().Namespaces().Create(c.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "fleet-"}}, metav1.CreateOptions{})
	require.NoError(c, err)
	return ns.Name
}

// create makes an External Proxy.
func (c *cluster) create(namespace, name string) *unstructured.Unstructured {
	c.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy",
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{
			"mode": "External", "endpoint": map[string]any{"host": "127.0.0.1", "port": int64(3128)},
			"attributes": map[string]any{"geo": "eu"},
		},
	}}
	created, err := c.objects.Resource(v1alpha1.ProxyResource()).Namespace(namespace).Create(c.Context(), u, metav1.CreateOptions{})
	require.NoError(c, err)
	return created
}

// setStatus writes what the hook would have Metacontroller write.
func (c *cluster) setStatus(u *unstructured.Unstructured, s v1alpha1.ProxyStatus) {
	c.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&s)
	require.NoError(c, err)
	res := c.objects.Resource(v1alpha1.ProxyResource()).Namespace(u.GetNamespace())
	latest, err := res.Get(c.Context(), u.GetName(), metav1.GetOptions{})
	require.NoError(c, err)
	latest.Object["status"] = content
	_, err = res.UpdateStatus(c.Context(), latest, metav1.UpdateOptions{})
	require.NoError(c, err)
}

func (c *cluster) view(namespace, systemNamespace string, maxAge time.Duration) *View {
	return NewView(Config{
		Dynamic: c.objects, Kubernetes: c.clients, Namespace: namespace, SystemNamespace: systemNamespace,
		VerdictMaxAge: maxAge, Clock: clock.RealClock{}, Log: testLog(),
	})
}

// running runs the view for as long as the test.
func running(t *testing.T, v *View) *View {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- v.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return v
}

// eventually waits until check sees what it wants in the view.
func eventually(t *testing.T, v *View, what string, check func(Snapshot) bool) {
	t.Helper()
	testwait.Eventually(t, what, func() bool {
		snap, err := v.Snapshot()
		return err == nil && check(snap)
	})
}

func TestViewFollowsARealAPIServer(t *testing.T) {
	c := realCluster(t)
	ns, elsewhere, system := c.namespace(), c.namespace(), c.namespace()
	first := c.create(ns, "first")
	c.create(elsewhere, "not-ours")
	v := running(t, c.view(ns, system, time.Hour))
	eventually(t, v, "the list", func(s Snapshot) bool { return len(s.Proxies) == 1 })

	reasonOf := func(s Snapshot, name string) Reason {
		p := s.Find(ns + "/" + name)
		if p == nil {
			return "absent"
		}
		_, r := Leasable(p, s.Freshness)
		return r
	}
	snap, err := v.Snapshot()
	require.NoError(t, err)
	assert.Equal(t, ReasonNotReady, reasonOf(snap, "first"))
	assert.Equal(t, map[string]string{"geo": "eu"}, snap.Proxies[0].Attributes)
	assert.EqualValues(t, v1alpha1.DefaultMaxLeases, snap.Proxies[0].MaxLeases)

	c.setStatus(first, v1alpha1.ProxyStatus{Phase: v1alpha1.PhaseReady, IP: "127.0.0.1", Port: 3128, InstanceID: "external-x", ObservedGeneration: first.GetGeneration()})
	eventually(t, v, "ready, but nobody stands behind it", func(s Snapshot) bool { return reasonOf(s, "first") == ReasonVerdictStale })

	lease := leaseObject("prober-0-of-1", "0-of-1", ptr.To(time.Now()))
	lease.Namespace = system
	_, err = c.clients.CoordinationV1().Leases(system).Create(t.Context(), lease, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, v, "leasable", func(s Snapshot) bool { return reasonOf(s, "first") == ReasonNone })

	_, err = c.objects.Resource(v1alpha1.ProxyResource()).Namespace(ns).Patch(t.Context(), "first", "application/merge-patch+json",
		[]byte(`{"spec":{"endpoint":{"port":4000}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	eventually(t, v, "the edit", func(s Snapshot) bool { return reasonOf(s, "first") == ReasonStatusOutdated })

	c.create(ns, "second")
	eventually(t, v, "a second one", func(s Snapshot) bool { return len(s.Proxies) == 2 && s.Proxies[1].Name == "second" })
	require.NoError(t, c.objects.Resource(v1alpha1.ProxyResource()).Namespace(ns).Delete(t.Context(), "first", metav1.DeleteOptions{}))
	eventually(t, v, "the deletion", func(s Snapshot) bool { return reasonOf(s, "first") == "absent" && len(s.Proxies) == 1 })
}

// probe makes the ProxyProbe of a Proxy, as Metacontroller would.
func (c *cluster) probe(of *unstructured.Unstructured) {
	c.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "crawl.example.com/v1alpha1", "kind": "ProxyProbe",
		"metadata": map[string]any{"namespace": of.GetNamespace(), "name": of.GetName(), "ownerReferences": []any{map[string]any{
			"apiVersion": of.GetAPIVersion(), "kind": of.GetKind(), "name": of.GetName(), "uid": string(of.GetUID()), "controller": true,
		}}},
		"spec": map[string]any{"instanceID": "external-x", "host": "127.0.0.1", "port": int64(3128)},
	}}
	_, err := c.objects.Resource(v1alpha1.ProxyProbeResource()).Namespace(of.GetNamespace()).Create(c.Context(), u, metav1.CreateOptions{})
	require.NoError(c, err)
}

// setVerdict writes what the prober would.
func (c *cluster) setVerdict(of *unstructured.Unstructured, instance string, v v1alpha1.Verdict) {
	c.Helper()
	_, err := c.objects.Resource(v1alpha1.ProxyProbeResource()).Namespace(of.GetNamespace()).Patch(c.Context(), of.GetName(), "application/merge-patch+json",
		fmt.Appendf(nil, `{"status":{"instanceID":%q,"verdict":%q,"reason":"DialFailed","lastProbeTime":%q}}`, instance, v, time.Now().UTC().Format(time.RFC3339)), metav1.PatchOptions{}, "status")
	require.NoError(c, err)
}

// Without a hook, the Proxy's status stays Ready.
func TestViewAppliesVerdictsBeforeTheStatus(t *testing.T) {
	c := realCluster(t)
	ns, system := c.namespace(), c.namespace()
	const instance = "external-x"
	renewed := leaseObject("prober-0-of-1", "0-of-1", ptr.To(time.Now()))
	renewed.Namespace = system
	_, err := c.clients.CoordinationV1().Leases(system).Create(t.Context(), renewed, metav1.CreateOptions{})
	require.NoError(t, err)
	proxy := c.create(ns, "a")
	c.setStatus(proxy, v1alpha1.ProxyStatus{Phase: v1alpha1.PhaseReady, IP: "127.0.0.1", Port: 3128, InstanceID: instance, ObservedGeneration: proxy.GetGeneration()})
	c.probe(proxy)
	v := running(t, c.view(ns, system, time.Hour))
	is := func(want Reason, phase v1alpha1.Phase) func(Snapshot) bool {
		return func(s Snapshot) bool {
			p := s.Find(ns + "/a")
			_, got := Leasable(p, s.Freshness)
			return got == want && p.Phase == phase && p.VerdictAhead == (phase != v1alpha1.PhaseReady)
		}
	}
	eventually(t, v, "without a verdict", is(ReasonNone, v1alpha1.PhaseReady))
	c.setVerdict(proxy, instance, v1alpha1.VerdictUnhealthy)
	eventually(t, v, "dead", is(ReasonUnhealthy, v1alpha1.PhaseUnhealthy))

	later := running(t, c.view(ns, system, time.Hour))
	eventually(t, later, "dead by a list", is(ReasonUnhealthy, v1alpha1.PhaseUnhealthy))

	c.setVerdict(proxy, instance, v1alpha1.VerdictHealthy)
	eventually(t, v, "alive again", is(ReasonNone, v1alpha1.PhaseReady))
	c.setVerdict(proxy, instance, v1alpha1.VerdictUnknown)
	eventually(t, v, "nothing known", is(ReasonNotReady, v1alpha1.PhaseProbing))
	c.setVerdict(proxy, "external-y", v1alpha1.VerdictUnhealthy)
	eventually(t, v, "of another instance", is(ReasonNone, v1alpha1.PhaseReady))
	c.setVerdict(proxy, instance, v1alpha1.VerdictUnhealthy)
	eventually(t, v, "dead again", is(ReasonUnhealthy, v1alpha1.PhaseUnhealthy))
	require.NoError(t, c.objects.Resource(v1alpha1.ProxyProbeResource()).Namespace(ns).Delete(t.Context(), "a", metav1.DeleteOptions{}))
	eventually(t, v, "without a ProxyProbe", is(ReasonNone, v1alpha1.PhaseReady))
}

func TestViewIgnoresLeasesThatAreNoProbers(t *testing.T) {
	c := realCluster(t)
	system := c.namespace()
	other := leaseObject("leader", "", ptr.To(time.Now()))
	other.Namespace, other.Labels = system, nil
	_, err := c.clients.CoordinationV1().Leases(system).Create(t.Context(), other, metav1.CreateOptions{})
	require.NoError(t, err)
	v := running(t, c.view(system, system, time.Minute))
	eventually(t, v, "no shard", func(s Snapshot) bool { alive, lapsed := s.Freshness.Shards(); return alive+lapsed == 0 })
}

func TestViewTellsWhatItWaitsFor(t *testing.T) {
	objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{v1alpha1.ProxyResource(): "ProxyList", v1alpha1.ProxyProbeResource(): "ProxyProbeList"})
	clients := kubernetesfake.NewClientset()
	clients.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("leases are forbidden")
	})
	v := NewView(Config{Dynamic: objects, Kubernetes: clients, SystemNamespace: "system", VerdictMaxAge: time.Minute, Clock: clock.RealClock{}, Log: testLog()})

	_, err := v.Snapshot()
	require.ErrorIs(t, err, ErrNotSynced)
	assert.ErrorContains(t, err, "no list of proxies yet")
	assert.ErrorContains(t, err, "no list of proxyprobes yet")
	assert.ErrorContains(t, err, "no list of prober leases yet")

	running(t, v)
	require.Eventually(t, func() bool {
		err := v.Ready()
		return errors.Is(err, ErrNotSynced) && !strings.Contains(err.Error(), "proxies") && strings.Contains(err.Error(), "leases are forbidden")
	}, time.Minute, 10*time.Millisecond)
}

// The lists are in, then the watch of the probers' Leases fails and recovers.
func TestSnapshotKnowsThatItsWatchOfLeasesFails(t *testing.T) {
	v := NewView(Config{
		Dynamic: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), Kubernetes: kubernetesfake.NewClientset(),
		VerdictMaxAge: time.Minute, Clock: clock.RealClock{}, Log: testLog(),
	})
	for _, w := range v.watches {
		w.synced.Store(true)
	}
	leases := v.watches[len(v.watches)-1]
	require.Equal(t, "prober leases", leases.what)
	for _, err := range []error{nil, errors.New("connection refused"), nil} {
		leases.note(t.Context(), err)
		snap, wrong := v.Snapshot()
		require.NoError(t, wrong)
		assert.Equal(t, err != nil, snap.Freshness.blind)
	}
}
