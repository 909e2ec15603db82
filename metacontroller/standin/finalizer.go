package standin

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ensureFinalizer returns parent with our finalizer when there is a finalize
// hook, and without it when there is none. It does not touch a parent that is
// being deleted and has lost the finalizer, nor one whose cached copy is right.
func (c *controller) ensureFinalizer(ctx context.Context, parent *object) (*object, error) {
	wanted := c.hooks.finalize != nil
	if c.hasFinalizer(parent) == wanted {
		return parent, nil
	}
	if !wanted {
		return c.removeFinalizer(ctx, parent)
	}
	if parent.GetDeletionTimestamp() != nil {
		return parent, nil
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

// managesChildren reports whether children of parent may be touched: always
// while it lives; when it is being deleted only as long as our finalizer holds
// it and the garbage collector, whose foreground or orphan finalizer would be
// there, is not already at work.
func (c *controller) managesChildren(parent *object) bool {
	if parent.GetDeletionTimestamp() == nil {
		return true
	}
	for _, finalizer := range parent.GetFinalizers() {
		if finalizer == metav1.FinalizerDeleteDependents || finalizer == metav1.FinalizerOrphanDependents {
			return false
		}
	}
	return c.hooks.finalize != nil && c.hasFinalizer(parent)
}
