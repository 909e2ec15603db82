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

// theirFinalizer must never be removed.
const theirFinalizer = "example.com/theirs"

// standIn reconciles finalizers like Metacontroller: with a finalize hook it adds
// one to every Proxy and removes it from a deleted Proxy when the hook returns
// finalized; without the hook it removes all; without a CompositeController it
// changes nothing.
type standIn struct {
	c *cluster
	// finished is the finalized of the finalize hook's responses.
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

// pass ignores errors: the next pass retries.
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
