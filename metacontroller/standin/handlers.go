package standin

import (
	"context"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// parentHandler queues a parent on every event of it, but for updates that
// change nothing that counts.
func (c *controller) parentHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { c.enqueue(unwrap(obj)) },
		UpdateFunc: func(old, obj any) {
			if !c.ignoreStatus || changed(old.(*object), obj.(*object)) {
				c.enqueue(unwrap(obj))
			}
		},
		DeleteFunc: func(obj any) { c.enqueue(unwrap(obj)) },
	}
}

// changed reports whether more than the status or the finalizers of a parent
// differ: ignoreStatusChanges looks at generation, labels and annotations, and
// lets everything through once the parent is being deleted.
func changed(old, obj *object) bool {
	return obj.GetGeneration() != old.GetGeneration() ||
		!reflect.DeepEqual(obj.GetLabels(), old.GetLabels()) ||
		!reflect.DeepEqual(obj.GetAnnotations(), old.GetAnnotations()) ||
		obj.GetDeletionTimestamp() != nil
}

// childHandler queues the parent of a child that came, changed or went.
func (c *controller) childHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.enqueueParents(unwrap(obj)) },
		UpdateFunc: func(old, obj any) { onUpdate(old, obj, func(_, obj *object) { c.enqueueParents(obj) }) },
		DeleteFunc: func(obj any) { c.enqueueOwner(unwrap(obj)) },
	}
}

// relatedHandler queues the parents that a changed object is, or was, related
// to.
func (c *controller) relatedHandler(ctx context.Context) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.enqueueRelated(ctx, unwrap(obj)) },
		UpdateFunc: func(old, obj any) { onUpdate(old, obj, func(old, obj *object) { c.enqueueRelated(ctx, old, obj) }) },
		DeleteFunc: func(obj any) { c.enqueueRelated(ctx, unwrap(obj)) },
	}
}

// onUpdate calls do unless nothing changed, as after a re-list.
func onUpdate(old, obj any, do func(old, obj *object)) {
	before, after := old.(*object), obj.(*object)
	if before.GetResourceVersion() != after.GetResourceVersion() {
		do(before, after)
	}
}

// unwrap returns the object of an event, also of one that was missed and is only
// known by its last state.
func unwrap(obj any) *object {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	return obj.(*object)
}

func (c *controller) enqueue(parent *object) {
	c.queue.Add(keyOf(parent))
}

// enqueueParents queues the owner of child, or for an orphan those who could
// adopt it.
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

// enqueueOwner queues the parent that child's controller reference means. One
// of the same name and another UID is somebody else.
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
			c.log.Debug("cannot tell whether a related object concerns this parent", "parent", describe(parent), "err", err)
		}
		if concerned {
			c.enqueue(parent)
		}
	}
}

// cachedParent returns the parent of that key as last seen, nil when there is
// none. It must not be changed.
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
