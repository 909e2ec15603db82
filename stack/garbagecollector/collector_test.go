package garbagecollector

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

var shared controlplanetest.Shared

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Main(m)) }

const namespace = "default"

var pods = corev1.SchemeGroupVersion.WithResource("pods")

func proxyRef(name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion().String(), Kind: "Proxy", Name: name, UID: uid}
}

func otherRef() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "9d1c0000-0000-4000-8000-000000000009"}
}

const goneUID = types.UID("80169618-fb2c-4f63-9509-95fec86dc12d")

// cluster is a real API server with one Proxy in it, p.
type cluster struct {
	*controlplanetest.Cluster
	t     *testing.T
	proxy types.UID
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{Cluster: shared.Cluster(t, crd.Manifests()...), t: t}
	p := c.create(v1alpha1.ProxyResource(), "Proxy", "p", map[string]any{
		"mode": "External", "endpoint": map[string]any{"host": "192.0.2.1", "port": int64(3128)},
	})
	c.proxy = p.GetUID()
	return c
}

func (c *cluster) create(gvr schema.GroupVersionResource, kind, name string, spec map[string]any, owners ...metav1.OwnerReference) *unstructured.Unstructured {
	c.t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gvr.GroupVersion().String(), "kind": kind, "spec": spec}}
	obj.SetName(name)
	obj.SetOwnerReferences(owners)
	created, err := c.Dynamic.Resource(gvr).Namespace(namespace).Create(c.t.Context(), obj, metav1.CreateOptions{})
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		err := c.Dynamic.Resource(gvr).Namespace(namespace).Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		assert.True(c.t, err == nil || apierrors.IsNotFound(err), "%v", err)
	})
	return created
}

func (c *cluster) probe(name string, owners ...metav1.OwnerReference) {
	c.create(v1alpha1.ProxyProbeResource(), "ProxyProbe", name, map[string]any{"instanceID": "i", "host": "192.0.2.1", "port": int64(3128)}, owners...)
}

func (c *cluster) pod(name string, owners ...metav1.OwnerReference) {
	c.create(pods, "Pod", name, map[string]any{
		"automountServiceAccountToken": false, "containers": []any{map[string]any{"name": "c", "image": "i"}},
	}, owners...)
}

func (c *cluster) there(gvr schema.GroupVersionResource, name string) bool {
	c.t.Helper()
	_, err := c.Dynamic.Resource(gvr).Namespace(namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	require.True(c.t, err == nil || apierrors.IsNotFound(err), "%v", err)
	return err == nil
}

func TestSweepDeletesOrphans(t *testing.T) {
	c := newCluster(t)
	for name, owners := range map[string][]metav1.OwnerReference{
		"kept-without-owner":       nil,
		"kept-with-its-owner":      {proxyRef("p", c.proxy)},
		"kept-by-one-of-two":       {proxyRef("p", c.proxy), proxyRef("q", goneUID)},
		"kept-by-something-else":   {proxyRef("q", goneUID), otherRef()},
		"kept-of-another-kind":     {otherRef()},
		"gone-without-its-owner":   {proxyRef("q", goneUID)},
		"gone-under-a-name-reused": {proxyRef("p", goneUID)},
	} {
		c.probe(name, owners...)
		c.pod(name, owners...)
	}
	client, err := metadata.NewForConfig(c.RESTConfig())
	require.NoError(t, err)
	collector := New(client, slog.New(slog.DiscardHandler))
	for range 2 { // the second finds nothing to do
		require.NoError(t, collector.Sweep(t.Context()))
		for _, gvr := range []schema.GroupVersionResource{pods, v1alpha1.ProxyProbeResource()} {
			for _, name := range []string{"kept-without-owner", "kept-with-its-owner", "kept-by-one-of-two", "kept-by-something-else", "kept-of-another-kind"} {
				assert.True(t, c.there(gvr, name), "%s %s", gvr.Resource, name)
			}
			for _, name := range []string{"gone-without-its-owner", "gone-under-a-name-reused"} {
				assert.False(t, c.there(gvr, name), "%s %s", gvr.Resource, name)
			}
		}
	}
}

// fakeClient has an orphan of each kind and one that is being deleted.
func fakeClient() *fake.FakeMetadataClient {
	object := func(apiVersion, kind, name string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(kind + name), ResourceVersion: "7", OwnerReferences: []metav1.OwnerReference{proxyRef("q", goneUID)}},
		}
	}
	leaving := object("v1", "Pod", "leaving")
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	scheme := runtime.NewScheme()
	_ = metav1.AddMetaToScheme(scheme)
	return fake.NewSimpleMetadataClient(scheme, object("v1", "Pod", "orphan"), leaving,
		object(v1alpha1.GroupVersion().String(), "ProxyProbe", "orphan"))
}

func deletes(client *fake.FakeMetadataClient) []string {
	var out []string
	for _, a := range client.Actions() {
		if d, ok := a.(clienttesting.DeleteActionImpl); ok {
			out = append(out, d.Resource.Resource+"/"+d.Name)
		}
	}
	return out
}

// Without the list of Proxies everything would look like an orphan.
func TestSweepDeletesNothingWhileAListFails(t *testing.T) {
	for _, resource := range []string{"pods", "proxyprobes", "proxies"} {
		client := fakeClient()
		client.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewInternalError(assert.AnError)
		})
		err := New(client, slog.New(slog.DiscardHandler)).Sweep(t.Context())
		assert.ErrorContains(t, err, "list "+resource)
		assert.Empty(t, deletes(client))
	}
}

func TestSweepContinuesAfterAFailedDelete(t *testing.T) {
	client := fakeClient()
	client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInternalError(assert.AnError)
	})
	err := New(client, slog.New(slog.DiscardHandler)).Sweep(t.Context())
	assert.ErrorContains(t, err, "delete pods default/orphan")
	assert.Equal(t, []string{"pods/orphan", "proxyprobes/orphan"}, deletes(client), "what is being deleted already is left alone")
}

// What was changed or deleted meanwhile is looked at in the next sweep.
func TestSweepIgnoresConflicts(t *testing.T) {
	for _, refusal := range []error{
		apierrors.NewConflict(pods.GroupResource(), "orphan", assert.AnError), apierrors.NewNotFound(pods.GroupResource(), "orphan"),
	} {
		client := fakeClient()
		client.PrependReactor("delete", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
		assert.NoError(t, New(client, slog.New(slog.DiscardHandler)).Sweep(t.Context()))
	}
}

// An outage of the API server is no end.
func TestRunSweepsUntilItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fakeClient()
		sweeps := 0
		client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			sweeps++
			return sweeps < 3, nil, apierrors.NewInternalError(assert.AnError)
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); New(client, slog.New(slog.DiscardHandler)).Run(ctx) }()
		time.Sleep(3*period + time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"pods/orphan", "proxyprobes/orphan"}, deletes(client))
		cancel()
		<-done
	})
}
