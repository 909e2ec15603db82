// Package garbagecollector is a stand-in for the garbage collector of the controller manager, which
// the local stack does not run: it deletes the objects that deleted Proxies owned. Metacontroller
// needs one. It deletes only the children in its cache, and for seconds after an outage of the API
// server that cache may be stale and miss a child that Metacontroller has just created. When the
// Proxy is deleted in that time, the child stays, and a ProxyProbe then blocks the name for the
// next Proxy.
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
	period  = 3 * time.Second  // the time between two sweeps
	timeout = 10 * time.Second // bounds a sweep. The next sweep retries when the API server hangs.
)

// Collector deletes the Pods and ProxyProbes of Proxies that are gone.
type Collector struct {
	client metadata.Interface
	log    *slog.Logger
}

// New returns a collector that acts through client and logs its deletions.
func New(client metadata.Interface, log *slog.Logger) *Collector {
	return &Collector{client: client, log: log}
}

// Run sweeps until ctx ends. The next sweep retries a failed one, such as during an outage of the
// API server.
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

// Sweep deletes every orphan. It lists the Proxies after the children: a Proxy exists before its
// children, and no UID is reused, so a Proxy that is missing from the list is gone. The lists come
// from the API server's store, not from its watch cache. A failed delete does not stop the others;
// all errors are returned.
func (c *Collector) Sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
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

// orphan reports whether all owners of obj are Proxies that are gone.
func orphan(obj *metav1.PartialObjectMetadata, there map[types.UID]bool) bool {
	return obj.DeletionTimestamp == nil && len(obj.OwnerReferences) > 0 &&
		!slices.ContainsFunc(obj.OwnerReferences, func(ref metav1.OwnerReference) bool { return !isProxy(ref) || there[ref.UID] })
}

func isProxy(ref metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == v1alpha1.Group && ref.Kind == "Proxy"
}

// remove deletes child at the listed resource version, as the garbage collector does: the next
// sweep reconciles a child that has changed since, such as by a new owner.
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
