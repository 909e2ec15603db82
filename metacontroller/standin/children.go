package standin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// errNullChild: the real Metacontroller crashes on it, with all its controllers.
var errNullChild = errors.New("the response has a null child, which crashes the real Metacontroller")

// desiredChildren returns the children of a response as they are written: in the
// parent's namespace, with the generated selector label.
func desiredChildren(parent *object, answered []*object) (objectMap, error) {
	desired := objectMap{}
	for _, child := range answered {
		if child == nil {
			return nil, errNullChild
		}
		if child.GetNamespace() == "" {
			child.SetNamespace(parent.GetNamespace())
		}
		desired.add(child)
	}
	for _, kind := range desired {
		for _, child := range kind {
			if err := label(parent, child); err != nil {
				return nil, err
			}
		}
	}
	return desired, nil
}

// label sets the generated selector label. A hook that sets another value would
// orphan its child, which is an error.
func label(parent, child *object) error {
	labels, _, err := unstructured.NestedStringMap(child.Object, "metadata", "labels")
	if err != nil {
		return fmt.Errorf("labels of %s: %w", describe(child), err)
	}
	if labels == nil {
		labels = map[string]string{}
	}
	uid, set := labels[selectorLabel]
	if set && uid != string(parent.GetUID()) {
		return fmt.Errorf("%s has label %s: %s, which is not its parent's UID; Metacontroller sets that label", describe(child), selectorLabel, uid)
	}
	labels[selectorLabel] = string(parent.GetUID())
	child.SetLabels(labels)
	return nil
}

// reconcileChildren deletes children that are observed and not desired, then
// creates and updates the desired ones. It continues after an error, so that a
// failed delete does not block a create, and returns all errors.
func (c *controller) reconcileChildren(ctx context.Context, parent *object, observed, desired objectMap) error {
	var errs []error
	for _, gvk := range observed.kinds() {
		for _, key := range slices.Sorted(maps.Keys(observed[gvk])) {
			if desired[gvk][key] == nil {
				errs = append(errs, c.deleteChild(ctx, observed[gvk][key]))
			}
		}
	}
	for _, gvk := range desired.kinds() {
		for _, key := range slices.Sorted(maps.Keys(desired[gvk])) {
			if current := observed[gvk][key]; current != nil {
				errs = append(errs, c.updateChild(ctx, current, desired[gvk][key]))
			} else {
				errs = append(errs, c.createChild(ctx, parent, desired[gvk][key]))
			}
		}
	}
	return errors.Join(errs...)
}

// deleteChild deletes child and its dependents, unless it is terminating or its
// name belongs to another object by now.
func (c *controller) deleteChild(ctx context.Context, child *object) error {
	if child.GetDeletionTimestamp() != nil {
		return nil
	}
	r, err := c.resources.byKind(child.GroupVersionKind())
	if err != nil {
		return err
	}
	c.Log.Info("deleting child", "child", describe(child))
	uid, background := child.GetUID(), metav1.DeletePropagationBackground
	err = r.in(child.GetNamespace()).Delete(ctx, child.GetName(), metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &uid},
		PropagationPolicy: &background,
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", describe(child), err)
	}
	return nil
}

// createChild creates child. AlreadyExists is ignored, as in Metacontroller: no
// Event reports it and no retry follows.
func (c *controller) createChild(ctx context.Context, parent, child *object) error {
	r, err := c.resources.byKind(child.GroupVersionKind())
	if err != nil {
		return err
	}
	// Before fields are added that are not the hook's.
	if err := setLastApplied(child, child); err != nil {
		return err
	}
	own(parent, child)
	_, err = r.in(child.GetNamespace()).Create(ctx, child, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		c.Log.Info("child not created: an object of its name exists", "child", describe(child))
	case err != nil:
		return fmt.Errorf("create %s: %w", describe(child), err)
	default:
		c.Log.Info("created child", "child", describe(child))
	}
	return nil
}

// updateChild applies desired to current by the kind's update method, if that
// changes current.
func (c *controller) updateChild(ctx context.Context, current, desired *object) error {
	updated, err := applied(current, desired)
	if err != nil {
		return err
	}
	if reflect.DeepEqual(updated.Object, current.Object) || current.GetDeletionTimestamp() != nil {
		return nil
	}
	if c.method(current) != metacontroller.InPlace {
		return nil
	}
	r, err := c.resources.byKind(current.GroupVersionKind())
	if err != nil {
		return err
	}
	c.Log.Info("updating child", "child", describe(current))
	_, err = r.in(current.GetNamespace()).Update(ctx, updated, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("update %s: %w", describe(current), err)
	}
	return nil
}

// method is the update method of child's kind; OnDelete for kinds that are not in
// the manifest.
func (c *controller) method(child *object) metacontroller.UpdateMethod {
	for _, kind := range c.children {
		if kind.gvk.GroupKind() == child.GroupVersionKind().GroupKind() {
			return kind.method
		}
	}
	return metacontroller.OnDelete
}
