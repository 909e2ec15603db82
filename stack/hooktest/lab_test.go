package hooktest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
)

const (
	// Namespace of everything in a lab.
	Namespace = "default"
	// patience is a timeout far beyond what anything here takes, for loaded machines.
	patience = 4 * time.Minute
	poll     = 50 * time.Millisecond
)

// Lab is an API server with our kinds, and clients for it. Its objects are removed when the test
// ends.
type Lab struct {
	t    testing.TB
	cp   *controlplane.ControlPlane
	api  dynamic.Interface
	core kubernetes.Interface
}

// New returns a lab on cp. No other test may use cp at the same time.
func New(t testing.TB, cp *controlplane.ControlPlane) *Lab {
	t.Helper()
	l := &Lab{t: t, cp: cp}
	var err error
	if l.api, err = dynamic.NewForConfig(cp.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	if l.core, err = kubernetes.NewForConfig(cp.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	if err := controlplane.InstallCRDs(t.Context(), cp.RESTConfig(), crd.Manifests()...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.wipe)
	return l
}

// Drive makes d call hooks, which are served under /hooks, until the test ends or stop is called.
func (l *Lab) Drive(d Driver, hooks http.Handler) (stop func()) {
	l.t.Helper()
	server := httptest.NewServer(hooks)
	l.t.Cleanup(server.Close)
	return l.DriveAt(d, server.URL)
}

// DriveAt makes d call the hooks under /hooks of that URL, until the test ends or stop is called.
func (l *Lab) DriveAt(d Driver, url string) (stop func()) {
	l.t.Helper()
	c, err := metacontroller.DefaultController()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := c.SetHookBaseURL(url + "/hooks"); err != nil {
		l.t.Fatal(err)
	}
	return d.run(l.t, l.cp, c)
}

// In returns the client for a resource.
func (l *Lab) In(gvr schema.GroupVersionResource) dynamic.ResourceInterface {
	return l.api.Resource(gvr).Namespace(Namespace)
}

// Resources are the resources of a fleet's objects.
func Resources() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{v1alpha1.ProxyResource(), v1alpha1.ProxyProbeResource(), PodResource(), SecretResource()}
}

// PodResource is the resource of Pods.
func PodResource() schema.GroupVersionResource { return corev1.SchemeGroupVersion.WithResource("pods") }

// SecretResource is the resource of Secrets.
func SecretResource() schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource("secrets")
}

// wipe removes the objects that the test left, with their finalizers: the driver has stopped.
func (l *Lab) wipe() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, gvr := range Resources() {
		list, err := l.In(gvr).List(ctx, metav1.ListOptions{})
		if err != nil {
			l.t.Errorf("list %s: %v", gvr.Resource, err)
			continue
		}
		var wg sync.WaitGroup
		slots := make(chan struct{}, workers)
		for _, obj := range list.Items {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				if err := l.remove(ctx, gvr, &obj); err != nil {
					l.t.Errorf("remove %s %s: %v", gvr.Resource, obj.GetName(), err)
				}
			})
		}
		wg.Wait()
	}
}

// remove removes an object at once, despite finalizers and grace period.
func (l *Lab) remove(ctx context.Context, gvr schema.GroupVersionResource, obj metav1.Object) error {
	if len(obj.GetFinalizers()) > 0 {
		_, err := l.In(gvr).Patch(ctx, obj.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if ignoreGone(err) != nil {
			return err
		}
	}
	now := int64(0)
	return ignoreGone(l.In(gvr).Delete(ctx, obj.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Eventually polls a condition, and fails the test after a timeout. The poll interval grows with
// the duration of a poll, so that polling does not slow down the machine.
func (l *Lab) Eventually(what string, condition func() bool) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	for {
		began := time.Now()
		if condition() {
			return
		}
		select {
		case <-ctx.Done():
			l.t.Fatalf("not within %s: %s", patience, what)
		case <-time.After(max(poll, 4*time.Since(began))):
		}
	}
}
