package standin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// parentHandler enqueues a parent on each of its events, except updates that
// ignoreStatusChanges filters out.
func (c *controller) parentHandler() cache.ResourceEventHandler {
	ignoreStatus := metacontroller.Enabled(c.Controller.Spec.ParentResource.IgnoreStatusChanges)
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { c.enqueue(unwrap(obj)) },
		UpdateFunc: func(old, obj any) {
			if !ignoreStatus || changed(old.(*object), obj.(*object)) {
				c.enqueue(unwrap(obj))
			}
		},
		DeleteFunc: func(obj any) { c.enqueue(unwrap(obj)) },
	}
}

// changed is the filter of ignoreStatusChanges: it compares generation, labels
// and annotations, and passes every update once the parent is being deleted.
func changed(old, obj *object) bool {
	return obj.GetGeneration() != old.GetGeneration() ||
		!reflect.DeepEqual(obj.GetLabels(), old.GetLabels()) ||
		!reflect.DeepEqual(obj.GetAnnotations(), old.GetAnnotations()) ||
		obj.GetDeletionTimestamp() != nil
}

// childHandler enqueues the parent of a child that was added, updated or deleted.
func (c *controller) childHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.enqueueParents(unwrap(obj)) },
		UpdateFunc: func(old, obj any) { onUpdate(old, obj, func(_, obj *object) { c.enqueueParents(obj) }) },
		DeleteFunc: func(obj any) { c.enqueueOwner(unwrap(obj)) },
	}
}

// relatedHandler enqueues the parents that an object is, or was, related to.
func (c *controller) relatedHandler(ctx context.Context) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.enqueueRelated(ctx, unwrap(obj)) },
		UpdateFunc: func(old, obj any) { onUpdate(old, obj, func(old, obj *object) { c.enqueueRelated(ctx, old, obj) }) },
		DeleteFunc: func(obj any) { c.enqueueRelated(ctx, unwrap(obj)) },
	}
}

// onUpdate calls do unless the versions are equal, as after a relist.
func onUpdate(old, obj any, do func(old, obj *object)) {
	before, after := old.(*object), obj.(*object)
	if before.GetResourceVersion() != after.GetResourceVersion() {
		do(before, after)
	}
}

// unwrap returns the object of an event, or the last state in its tombstone.
func unwrap(obj any) *object {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	return obj.(*object)
}

func (c *controller) enqueue(parent *object) {
	c.queue.Add(keyOf(parent))
}

// enqueueParents enqueues the owner of child, or the parents that could adopt an
// orphan.
func (c *controller) enqueueParents(child *object) {
	if metav1.GetControllerOf(child) != nil || child.GetDeletionTimestamp() != nil {
		c.enqueueOwner(child)
		return
	}
	for _, parent := range c.cachedParents() {
		if reaches(parent, child) && claimOf(parent, child) == adopt {
			c.enqueue(parent)
		}
	}
}

// enqueueOwner enqueues the parent in child's controller reference, if its UID
// matches.
func (c *controller) enqueueOwner(child *object) {
	owner := metav1.GetControllerOf(child)
	if owner == nil || owner.Kind != c.parent.gvk.Kind {
		return
	}
	namespace := ""
	if c.parent.namespaced {
		namespace = child.GetNamespace()
	}
	parent := c.cachedParent(metacontroller.Key(namespace, owner.Name))
	if parent != nil && parent.GetUID() == owner.UID {
		c.enqueue(parent)
	}
}

func (c *controller) enqueueRelated(ctx context.Context, related ...*object) {
	for _, parent := range c.cachedParents() {
		concerned, err := c.related.concerns(ctx, parent, related...)
		if err != nil {
			c.Log.Debug("finding the rules of a parent failed; a related object may concern it", "parent", describe(parent), "err", err)
		}
		if concerned {
			c.enqueue(parent)
		}
	}
}

// cachedParent returns the parent of that key from the cache, or nil. Callers
// must not change it.
func (c *controller) cachedParent(key string) *object {
	obj, found, err := c.parents.store.GetByKey(key)
	if err != nil || !found {
		return nil
	}
	return obj.(*object)
}

func (c *controller) cachedParents() []*object {
	list := c.parents.store.List()
	out := make([]*object, 0, len(list))
	for _, obj := range list {
		out = append(out, obj.(*object))
	}
	return out
}

// watched is a running informer.
type watched struct {
	store cache.Indexer
	// synced reports whether the handler has received the whole initial list.
	synced cache.InformerSynced
}

// watch starts an informer of all objects of res, in all namespaces, without
// periodic resyncs. It ends with ctx.
func (c *controller) watch(ctx context.Context, res *resource, indexers cache.Indexers, handler cache.ResourceEventHandler) *watched {
	informer := dynamicinformer.NewFilteredDynamicInformer(c.client, res.gvr, "", 0, indexers, nil).Informer()
	log := c.Log.With("resource", res.gvr.GroupResource().String())
	watchErr := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { logWatchError(log, err) })
	registration, err := informer.AddEventHandler(handler)
	if err := errors.Join(watchErr, err); err != nil {
		// Only an informer that was started before returns an error.
		panic(fmt.Sprintf("watch %s: %v", res.gvr, err))
	}
	c.informers.Go(func() { informer.RunWithContext(ctx) })
	return &watched{store: informer.GetIndexer(), synced: registration.HasSynced}
}

// logWatchError logs failed watches, such as those without permission. An expired
// watch is normal.
func logWatchError(log *slog.Logger, err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		log.Debug("watch ended", "err", err)
		return
	}
	log.Warn("watch failed, retrying", "err", err)
}
