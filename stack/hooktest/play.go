package hooktest

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// players is the number of objects that one role handles concurrently.
const players = 4

// act handles an object in one role. It is called for every change, and retried after an error.
type act func(ctx context.Context, obj *unstructured.Unstructured) error

// play calls act for all objects of a resource until the test ends.
func (l *Lab) play(gvr schema.GroupVersionResource, act act) {
	l.t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	informer := dynamicinformer.NewFilteredDynamicInformer(l.api, gvr, Namespace, 0, cache.Indexers{}, nil).Informer()
	enqueue := func(obj any) {
		if key, err := cache.MetaNamespaceKeyFunc(obj); err == nil {
			queue.Add(key)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
	})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { informer.RunWithContext(ctx) })
	for range players {
		wg.Go(func() { l.perform(ctx, queue, informer.GetStore(), act) })
	}
	l.t.Cleanup(func() {
		cancel()
		queue.ShutDown()
		wg.Wait()
	})
}

// watch calls see for every object and every change, one after the other, until
// the test ends.
func (l *Lab) watch(gvr schema.GroupVersionResource, see func(obj *unstructured.Unstructured)) {
	l.t.Helper()
	informer := dynamicinformer.NewFilteredDynamicInformer(l.api, gvr, Namespace, 0, cache.Indexers{}, nil).Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { see(obj.(*unstructured.Unstructured)) },
		UpdateFunc: func(_, obj any) { see(obj.(*unstructured.Unstructured)) },
	})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.RunWithContext(ctx)
	}()
	l.t.Cleanup(func() {
		cancel()
		<-done
	})
}

// perform handles one object after the other. Conflicts and deleted objects are expected.
func (l *Lab) perform(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string], store cache.Store, act act) {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		var err error
		if obj, exists, _ := store.GetByKey(key); exists {
			err = act(ctx, obj.(*unstructured.Unstructured))
		}
		switch {
		case err == nil, apierrors.IsNotFound(err), ctx.Err() != nil:
			queue.Forget(key)
		case apierrors.IsConflict(err):
			queue.AddRateLimited(key)
		default:
			l.t.Logf("%s: %v", key, err)
			queue.AddRateLimited(key)
		}
		queue.Done(key)
	}
}
