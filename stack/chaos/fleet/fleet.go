// Package fleet is the Proxies of a fault campaign, and the users who create, edit,
// delete and re-create them. It records all their actions.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/external"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/supervise"
)

const (
	callTimeout = 5 * time.Second        // for one request of a user: the API server may be frozen
	creators    = 8                      // how many Proxies are created at once
	retryPause  = 300 * time.Millisecond // between two retries of a create
)

// Config of the Proxies. All fields are required.
type Config struct {
	Kube      *rest.Config
	Namespace string
	// Provider runs Pods, CloudProvider VMs.
	Provider, CloudProvider string
	ProbeURL                string
	// ExternalIP is the listen address of the External proxies, Sites their targets.
	ExternalIP string
	Sites      external.Sites
	// External, Pods and VMs are the numbers of Proxies.
	External, Pods, VMs int
	Recorder            *history.Recorder
}

// Fleet is the Proxies.
type Fleet struct {
	cfg      Config
	objects  dynamic.ResourceInterface
	informer cache.SharedIndexInformer
	// externals has the two addresses of each External Proxy: an edit moves it from one to
	// the other. Faults hit both.
	externals map[string]*[2]*external.Proxy

	// busy has a lock per Proxy, held during an action on it.
	busy map[string]*sync.Mutex
}

// New opens the External proxies. Close closes them.
func New(cfg Config) (*Fleet, error) {
	kube := rest.CopyConfig(cfg.Kube)
	kube.Timeout = callTimeout
	client, err := dynamic.NewForConfig(kube)
	if err != nil {
		return nil, fmt.Errorf("fleet: client: %w", err)
	}
	watching, err := dynamic.NewForConfig(cfg.Kube)
	if err != nil {
		return nil, fmt.Errorf("fleet: client: %w", err)
	}
	f := &Fleet{
		cfg: cfg, objects: client.Resource(v1alpha1.ProxyResource()).Namespace(cfg.Namespace),
		informer:  dynamicinformer.NewFilteredDynamicInformer(watching, v1alpha1.ProxyResource(), cfg.Namespace, 0, cache.Indexers{}, nil).Informer(),
		externals: map[string]*[2]*external.Proxy{}, busy: map[string]*sync.Mutex{},
	}
	for _, name := range f.Names() {
		f.busy[name] = &sync.Mutex{}
	}
	for _, name := range f.External() {
		f.externals[name] = &[2]*external.Proxy{}
		for i := range f.externals[name] {
			if f.externals[name][i], err = external.Open(cfg.ExternalIP, cfg.Sites); err != nil {
				return nil, errors.Join(err, f.Close())
			}
		}
	}
	return f, nil
}

// External are the names of the External Proxies.
func (f *Fleet) External() []string { return names(kindExternal, f.cfg.External) }

// Pods are the names of the Proxies on Pods.
func (f *Fleet) Pods() []string { return names(kindPod, f.cfg.Pods) }

// VMs are the names of the Proxies on VMs.
func (f *Fleet) VMs() []string { return names(kindVM, f.cfg.VMs) }

// Names are those of all Proxies.
func (f *Fleet) Names() []string { return slices.Concat(f.External(), f.Pods(), f.VMs()) }

// IsExternal reports whether a Proxy is External.
func (f *Fleet) IsExternal(name string) bool { return f.externals[name] != nil }

// FullName of a Proxy is "namespace/name".
func (f *Fleet) FullName(name string) string { return f.cfg.Namespace + "/" + name }

// Recorder is the history.
func (f *Fleet) Recorder() *history.Recorder { return f.cfg.Recorder }

// Watch updates the cache of Proxies until ctx ends.
func (f *Fleet) Watch(ctx context.Context) { f.informer.RunWithContext(ctx) }

// Close closes the External proxies.
func (f *Fleet) Close() error {
	var errs []error
	for _, both := range f.externals {
		for _, p := range both {
			if p != nil {
				errs = append(errs, p.Close())
			}
		}
	}
	return errors.Join(errs...)
}

// Known is the cached Proxy of that name, nil when there is none. It needs no API server.
func (f *Fleet) Known(name string) *v1alpha1.Proxy {
	obj, exists, err := f.informer.GetStore().GetByKey(f.cfg.Namespace + "/" + name)
	if err != nil || !exists {
		return nil
	}
	p, _ := toProxy(obj.(*unstructured.Unstructured))
	return p
}

// Complete creates the missing Proxies, also those that are being deleted once they are
// gone, and returns when all exist.
func (f *Fleet) Complete(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for _, name := range f.Names() {
		group.Go(func() error {
			f.busy[name].Lock()
			defer f.busy[name].Unlock()
			return f.ensure(ctx, name, "")
		})
	}
	return group.Wait()
}

// ensure returns when a Proxy of that name exists that is not being deleted and has
// another UID.
func (f *Fleet) ensure(ctx context.Context, name, not string) error {
	for {
		p, err := f.get(ctx, name)
		switch {
		case err != nil: // retried
		case p == nil && f.create(ctx, name, not != "") == nil:
			return nil
		case p != nil && p.DeletionTimestamp == nil && string(p.UID) != not:
			return nil
		}
		if !supervise.Sleep(ctx, retryPause) {
			return fmt.Errorf("make proxy %s: %w", name, ctx.Err())
		}
	}
}

func toProxy(u *unstructured.Unstructured) (*v1alpha1.Proxy, error) {
	p := &v1alpha1.Proxy{}
	if err := v1alpha1.FromUnstructured(u.Object, p); err != nil {
		return nil, err
	}
	return p, nil
}

func fromProxy(p *v1alpha1.Proxy) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		return nil, fmt.Errorf("write a Proxy: %w", err)
	}
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	return u, nil
}
