package install_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// theirFinalizer must survive everything.
const theirFinalizer = "example.com/theirs"

// standIn does to finalizers what Metacontroller does: a CompositeController
// with a finalize hook puts its own on every Proxy and takes it off deleted ones
// once the hook says so; one without the hook takes it off all; without a
// CompositeController nothing happens.
type standIn struct {
	c *cluster
	// finished is what the finalize hook answers.
	finished atomic.Bool
}

// run acts until the test ends.
func (s *standIn) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			s.pass(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// pass ignores errors as a level-triggered controller may.
func (s *standIn) pass(ctx context.Context) {
	cc, err := s.c.Dynamic.Resource(controllers()).Get(ctx, metacontroller.ControllerName, metav1.GetOptions{})
	if err != nil {
		return
	}
	_, hook, _ := unstructured.NestedMap(cc.Object, "spec", "hooks", "finalize")
	proxies, err := s.c.Dynamic.Resource(v1alpha1.ProxyResource()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, proxy := range proxies.Items {
		have := proxy.GetFinalizers()
		deleted := proxy.GetDeletionTimestamp() != nil
		switch held := slices.Contains(have, metacontroller.Finalizer); {
		case hook && !held && !deleted:
			s.set(ctx, &proxy, append(have, metacontroller.Finalizer))
		case held && (!hook || deleted && s.finished.Load()):
			s.set(ctx, &proxy, slices.DeleteFunc(have, func(f string) bool { return f == metacontroller.Finalizer }))
		}
	}
}

func (s *standIn) set(ctx context.Context, proxy *unstructured.Unstructured, finalizers []string) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": finalizers, "resourceVersion": proxy.GetResourceVersion()}})
	if err != nil {
		panic(err)
	}
	_, err = s.c.Dynamic.Resource(v1alpha1.ProxyResource()).Namespace(proxy.GetNamespace()).Patch(ctx, proxy.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		panic(err)
	}
}
