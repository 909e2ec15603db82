package standin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// selectorLabel is set on children by generateSelector to their parent's UID.
const selectorLabel = "controller-uid"

// byOwner is the index of child informers: the UID of the controlling owner, ""
// without one.
const byOwner = "owner"

var childIndexers = cache.Indexers{byOwner: func(obj any) ([]string, error) {
	if owner := metav1.GetControllerOf(obj.(*object)); owner != nil {
		return []string{string(owner.UID)}, nil
	}
	return []string{""}, nil
}}

// childKind is one configured kind of children.
type childKind struct {
	*resource
	method metacontroller.UpdateMethod
	cache  cache.Indexer
}

// claim is the relation of an object to a parent.
type claim int

const (
	notOurs claim = iota
	ours
	adopt
	release
)

// claimOf classifies one candidate. An owned object without the label is
// released and an orphan with the label is adopted, both only while neither
// object is being deleted.
func claimOf(parent, candidate *object) claim {
	matches := candidate.GetLabels()[selectorLabel] == string(parent.GetUID())
	if owner := metav1.GetControllerOf(candidate); owner != nil {
		switch {
		case owner.UID != parent.GetUID():
			return notOurs
		case matches:
			return ours
		case parent.GetDeletionTimestamp() != nil:
			return notOurs
		}
		return release
	}
	if !matches || parent.GetDeletionTimestamp() != nil || candidate.GetDeletionTimestamp() != nil {
		return notOurs
	}
	return adopt
}

// claimChildren returns the children of parent, every configured kind present.
func (c *controller) claimChildren(ctx context.Context, parent *object) (objectMap, error) {
	children := objectMap{}
	mayAdopt := sync.OnceValue(func() error { return c.recheckParent(ctx, parent) })
	for _, kind := range c.children {
		children.addKind(kind.gvk)
		candidates, err := kind.candidates(parent)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.gvr.Resource, err)
		}
		var errs []error
		for _, candidate := range candidates {
			claimed, err := c.executeClaim(ctx, kind, parent, candidate, mayAdopt)
			if claimed {
				children.add(candidate)
			}
			errs = append(errs, err)
		}
		if err := errors.Join(errs...); err != nil {
			return nil, fmt.Errorf("claim %s: %w", kind.gvr.Resource, err)
		}
	}
	return children, nil
}

// candidates are the objects in the parent's namespace that it owns or that have
// no controlling owner.
func (k *childKind) candidates(parent *object) ([]*object, error) {
	var out []*object
	for _, owner := range []string{string(parent.GetUID()), ""} {
		found, err := k.cache.ByIndex(byOwner, owner)
		if err != nil {
			return nil, err
		}
		for _, obj := range found {
			if obj := obj.(*object); reaches(parent, obj) {
				out = append(out, obj)
			}
		}
	}
	return out, nil
}

// reaches reports whether obj is where children of parent may be: in its
// namespace, or anywhere for a cluster-scoped parent.
func reaches(parent, obj *object) bool {
	return parent.GetNamespace() == "" || parent.GetNamespace() == obj.GetNamespace()
}

// executeClaim adopts or releases a candidate and reports whether it is a child.
func (c *controller) executeClaim(ctx context.Context, kind *childKind, parent, candidate *object, mayAdopt func() error) (bool, error) {
	var err error
	claimed := false
	switch claimOf(parent, candidate) {
	case notOurs:
		return false, nil
	case ours:
		return true, nil
	case release:
		c.Log.Info("releasing child", "child", describe(candidate), "parent", describe(parent))
		_, err = update(ctx, kind.resource, candidate, func(current *object) bool {
			current.SetOwnerReferences(slices.DeleteFunc(current.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
				return ref.UID == parent.GetUID()
			}))
			return true
		})
	case adopt:
		if err := mayAdopt(); err != nil {
			return false, fmt.Errorf("adopt %s: %w", describe(candidate), err)
		}
		c.Log.Info("adopting child", "child", describe(candidate), "parent", describe(parent))
		claimed = true
		_, err = update(ctx, kind.resource, candidate, func(current *object) bool {
			own(parent, current)
			return true
		})
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return claimed && err == nil, err
}

// recheckParent reads the parent from the API server: a stale cached copy of a
// deleted or replaced parent must not adopt.
func (c *controller) recheckParent(ctx context.Context, parent *object) error {
	fresh, err := c.parent.in(parent.GetNamespace()).Get(ctx, parent.GetName(), metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("recheck parent: %w", err)
	case fresh.GetUID() != parent.GetUID():
		return fmt.Errorf("%s with UID %s is gone, a new one has %s", describe(parent), parent.GetUID(), fresh.GetUID())
	case fresh.GetDeletionTimestamp() != nil:
		return fmt.Errorf("%s has just been deleted", describe(parent))
	}
	return nil
}

// own adds the controller reference of parent to child, if it is missing.
func own(parent, child *object) {
	refs := child.GetOwnerReferences()
	if slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool { return ref.UID == parent.GetUID() }) {
		return
	}
	child.SetOwnerReferences(append(refs, *metav1.NewControllerRef(parent, parent.GroupVersionKind())))
}
