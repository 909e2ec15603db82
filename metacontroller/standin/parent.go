package standin

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// ensureFinalizer returns parent with our finalizer if there is a finalize hook,
// and without it otherwise. It does not write if the cached copy is right, or if
// the parent is being deleted and has lost the finalizer.
func (c *controller) ensureFinalizer(ctx context.Context, parent *object) (*object, error) {
	switch wanted := c.hooks.finalize != nil; {
	case c.hasFinalizer(parent) == wanted, wanted && parent.GetDeletionTimestamp() != nil:
		return parent, nil
	case !wanted:
		return c.removeFinalizer(ctx, parent)
	}
	updated, err := update(ctx, c.parent, parent, func(current *object) bool {
		if c.hasFinalizer(current) {
			return false
		}
		current.SetFinalizers(append(current.GetFinalizers(), c.finalizer))
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("add finalizer: %w", err)
	}
	return updated, nil
}

func (c *controller) removeFinalizer(ctx context.Context, parent *object) (*object, error) {
	updated, err := update(ctx, c.parent, parent, func(current *object) bool {
		if !c.hasFinalizer(current) {
			return false
		}
		current.SetFinalizers(slices.DeleteFunc(current.GetFinalizers(), func(f string) bool { return f == c.finalizer }))
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("remove finalizer: %w", err)
	}
	return updated, nil
}

func (c *controller) hasFinalizer(parent *object) bool {
	return slices.Contains(parent.GetFinalizers(), c.finalizer)
}

// managesChildren reports whether children of parent may be written: always
// before its deletion; during its deletion only while it has our finalizer, and
// not the foreground or orphan finalizer of the garbage collector.
func (c *controller) managesChildren(parent *object) bool {
	finalizers := parent.GetFinalizers()
	collected := slices.Contains(finalizers, metav1.FinalizerDeleteDependents) || slices.Contains(finalizers, metav1.FinalizerOrphanDependents)
	return parent.GetDeletionTimestamp() == nil || !collected && c.hooks.finalize != nil && c.hasFinalizer(parent)
}

// update reads the object that cached is a copy of, calls change, and writes the
// object if change returns true; it retries on a conflict. It returns the current
// object. An object of the same name with another UID is NotFound: a stale cache
// must not change a successor.
func update(ctx context.Context, r *resource, cached *object, change func(*object) bool, subresources ...string) (*object, error) {
	client := r.in(cached.GetNamespace())
	var out *object
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		current, err := client.Get(ctx, cached.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if current.GetUID() != cached.GetUID() {
			return apierrors.NewNotFound(r.gvr.GroupResource(), cached.GetName())
		}
		out = current
		if !change(current) {
			return nil
		}
		out, err = client.Update(ctx, current, metav1.UpdateOptions{}, subresources...)
		return err
	})
	return out, err
}

// replaceStatus writes the status of the response, plus observedGeneration, unless
// the parent has it. NotFound and conflicts are ignored: the parent is gone, or a
// watch event follows.
func (c *controller) replaceStatus(ctx context.Context, parent *object, status map[string]any) error {
	if status == nil {
		status = map[string]any{}
	}
	status["observedGeneration"] = parent.GetGeneration()
	_, err := update(ctx, c.parent, parent, func(current *object) bool {
		if reflect.DeepEqual(current.Object["status"], any(status)) {
			return false
		}
		current.Object["status"] = status
		return true
	}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("update status: %w", err)
	}
	return nil
}
