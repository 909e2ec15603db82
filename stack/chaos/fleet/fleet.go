package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/external"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

const (
	// callTimeout bounds one call of a user: the API server may be frozen.
	callTimeout = 5 * time.Second
	// creators is how many Proxies are made at once.
	creators = 8
	// retryPause is between two tries of what has to succeed.
	retryPause = 300 * time.Millisecond
)

// Config says which Proxies there are. All fields are required.
type Config struct {
	// Kube reaches the API server.
	Kube *rest.Config
	// Namespace of all Proxies.
	Namespace string
	// Provider runs Pods, CloudProvider VMs.
	Provider, CloudProvider string
	// ProbeURL of every health check.
	ProbeURL string
	// ExternalIP is where the proxies of others listen, Sites where they lead.
	ExternalIP string
	Sites      external.Sites
	// External, Pods and VMs are how many of each there are.
	External, Pods, VMs int
	// Recorder is told what users do.
	Recorder *history.Recorder
}

// Fleet is the Proxies.
type Fleet struct {
	cfg       Config
	objects   dynamic.ResourceInterface
	informer  cache.SharedIndexInformer
	externals map[string]*endpoints

	// busy is held by whoever does something to the Proxy of that name.
	busy map[string]*sync.Mutex
}

// New opens the proxies of others. Close closes them.
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
	gvr := v1alpha1.GroupVersion().WithResource("proxies")
	f := &Fleet{
		cfg: cfg, objects: client.Resource(gvr).Namespace(cfg.Namespace),
		informer:  dynamicinformer.NewFilteredDynamicInformer(watching, gvr, cfg.Namespace, 0, cache.Indexers{}, nil).Informer(),
		externals: map[string]*endpoints{}, busy: map[string]*sync.Mutex{},
	}
	for _, name := range f.Names() {
		f.busy[name] = &sync.Mutex{}
	}
	for _, name := range f.External() {
		if f.externals[name], err = openEndpoints(cfg.ExternalIP, cfg.Sites); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// External are the names of the Proxies of others.
func (f *Fleet) External() []string { return names(kindExternal, f.cfg.External) }

// Pods are the names of the Proxies on Pods.
func (f *Fleet) Pods() []string { return names(kindPod, f.cfg.Pods) }

// VMs are the names of the Proxies on VMs.
func (f *Fleet) VMs() []string { return names(kindVM, f.cfg.VMs) }

// Names are those of all Proxies.
func (f *Fleet) Names() []string { return slices.Concat(f.External(), f.Pods(), f.VMs()) }

// IsExternal reports whether the Proxy of that name is one of others.
func (f *Fleet) IsExternal(name string) bool { return f.externals[name] != nil }

// FullName of a Proxy is "namespace/name".
func (f *Fleet) FullName(name string) string { return f.cfg.Namespace + "/" + name }

// Zones are those that VMs are in.
func (f *Fleet) Zones() []string { return zones() }

// Recorder is where all that is done is written down.
func (f *Fleet) Recorder() *history.Recorder { return f.cfg.Recorder }

// Watch keeps what is known of the Proxies fresh until ctx ends.
func (f *Fleet) Watch(ctx context.Context) { f.informer.RunWithContext(ctx) }

// Close closes the proxies of others.
func (f *Fleet) Close() error {
	var errs []error
	for _, e := range f.externals {
		if e != nil {
			errs = append(errs, e.close())
		}
	}
	return errors.Join(errs...)
}

// Known is the Proxy of that name as it was last seen, nil when there is none.
// It works while the API server is away.
func (f *Fleet) Known(name string) *v1alpha1.Proxy {
	obj, exists, err := f.informer.GetStore().GetByKey(f.cfg.Namespace + "/" + name)
	if err != nil || !exists {
		return nil
	}
	p, err := toProxy(obj.(*unstructured.Unstructured))
	if err != nil {
		return nil
	}
	return p
}

// Fill makes all Proxies.
func (f *Fleet) Fill(ctx context.Context) error { return f.Complete(ctx) }

// Complete makes those Proxies that are missing, and returns when all are there.
// Those that are being deleted are made anew when they are gone.
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

// ensure returns when there is a Proxy of that name that is not being deleted
// and is not the one with that UID.
func (f *Fleet) ensure(ctx context.Context, name, not string) error {
	for {
		p, err := f.get(ctx, name)
		switch {
		case err == nil && p != nil && p.DeletionTimestamp == nil && string(p.UID) != not:
			return nil
		case err == nil && p == nil:
			if f.create(ctx, name, not != "") == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("make proxy %s: %w", name, ctx.Err())
		case <-time.After(retryPause):
		}
	}
}

// initial is the Proxy of that name as it is first made.
func (f *Fleet) initial(name string) *v1alpha1.Proxy {
	k, number, _ := strings.Cut(name, "-")
	n, err := strconv.Atoi(number)
	if err != nil {
		panic(fmt.Sprintf("fleet: no Proxy is called %q", name)) // names are ours
	}
	return f.proxy(name, kind(k), n)
}

func toProxy(u *unstructured.Unstructured) (*v1alpha1.Proxy, error) {
	p := &v1alpha1.Proxy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, p); err != nil {
		return nil, fmt.Errorf("read a Proxy: %w", err)
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

// options are those of all that users do.
func options() metav1.CreateOptions { return metav1.CreateOptions{FieldManager: "chaos"} }
