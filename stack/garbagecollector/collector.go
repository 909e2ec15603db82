// Package garbagecollector stands in for the garbage collector of the controller
// manager, which the local stack does without: it deletes what Proxies owned once
// they are gone. Metacontroller needs one. It deletes the children that it
// sees, and for seconds after an outage of the API server it may not see one
// that it has just made: when the Proxy goes in that time, the child stays, and
// a ProxyProbe keeps its name from the next Proxy of that name.
package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

const (
	// period is the time between two sweeps.
	period = 3 * time.Second
	// patience is how long a sweep may take: an API server that hangs is asked
	// again.
	patience = 10 * time.Second
)

// Collector deletes the Pods and ProxyProbes of Proxies that are gone.
type Collector struct {
	client metadata.Interface
	log    *slog.Logger
}

// New returns a collector that acts through client and tells log what it deletes.
func New(client metadata.Interface, log *slog.Logger) *Collector {
	return &Collector{client: client, log: log}
}

// Run sweeps until ctx ends. A sweep that fails, as they do while the API
// server is away, is made up for by the next.
func (c *Collector) Run(ctx context.Context) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := c.Sweep(ctx); err != nil && ctx.Err() == nil {
			c.log.Debug("sweep failed", "err", err)
		}
	}
}

// child is an object that a Proxy may own.
type child struct {
	kind schema.GroupVersionResource
	*metav1.PartialObjectMetadata
}

// Sweep deletes whatever is an orphan now. The Proxies are listed after the
// children: a Proxy is there before its children are, and no UID comes twice, so
// that one that is missing then is gone. All lists come from the store of the API
// server and not from its cache. One delete that fails keeps no other from being
// tried; all errors are returned.
func (c *Collector) Sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var children []child
	for _, kind := range []schema.GroupVersionResource{corev1.SchemeGroupVersion.WithResource("pods"), v1alpha1.ProxyProbeResource()} {
		items, err := c.list(ctx, kind)
		if err != nil {
			return err
		}
		for i := range items {
			children = append(children, child{kind, &items[i]})
		}
	}
	proxies, err := c.list(ctx, v1alpha1.ProxyResource())
	if err != nil {
		return err
	}
	there := make(map[types.UID]bool, len(proxies))
	for i := range proxies {
		there[proxies[i].UID] = true
	}
	var errs []error
	for _, child := range children {
		if orphan(child.PartialObjectMetadata, there) {
			errs = append(errs, c.remove(ctx, child))
		}
	}
	return errors.Join(errs...)
}

func (c *Collector) list(ctx context.Context, kind schema.GroupVersionResource) ([]metav1.PartialObjectMetadata, error) {
	list, err := c.client.Resource(kind).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", kind.Resource, err)
	}
	return list.Items, nil
}

// orphan reports whether obj had Proxies for owners, nobody else, and all of them
// are gone.
func orphan(obj *metav1.PartialObjectMetadata, there map[types.UID]bool) bool {
	return obj.DeletionTimestamp == nil && len(obj.OwnerReferences) > 0 &&
		!slices.ContainsFunc(obj.OwnerReferences, func(ref metav1.OwnerReference) bool { return !isProxy(ref) || there[ref.UID] })
}

func isProxy(ref metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == v1alpha1.Group && ref.Kind == "Proxy"
}

// remove deletes child as it was seen, as the garbage collector does: what has
// changed since, such as by a new owner, is looked at again.
func (c *Collector) remove(ctx context.Context, child child) error {
	c.log.Info("deleting, since its owner is gone", "resource", child.kind.Resource, "namespace", child.Namespace, "name", child.Name)
	err := c.client.Resource(child.kind).Namespace(child.Namespace).Delete(ctx, child.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &child.UID, ResourceVersion: &child.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s %s/%s: %w", child.kind.Resource, child.Namespace, child.Name, err)
	}
	return nil
}
