package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/kube"
)

// source lists and watches one kind of object.
type source struct {
	client any // for the reflector to detect support of watch lists
	list   func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch  func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// ourSource is for our own kinds.
func ourSource(cfg Config, resource schema.GroupVersionResource) source {
	res := cfg.Dynamic.Resource(resource).Namespace(cfg.Namespace)
	return source{
		client: cfg.Dynamic,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return res.List(ctx, o)
		},
		watch: res.Watch,
	}
}

func leaseSource(cfg Config) source {
	leases := cfg.Kubernetes.CoordinationV1().Leases(cfg.SystemNamespace)
	return source{
		client: cfg.Kubernetes,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = v1alpha1.LabelProberShard
			return leases.List(ctx, o)
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = v1alpha1.LabelProberShard
			return leases.Watch(ctx, o)
		},
	}
}

// watcher keeps a store in sync with the API server. It is a reflector without an
// informer, which would cache every object a second time.
type watcher struct {
	what    string
	source  source
	example runtime.Object
	store   cache.ReflectorStore
	synced  *atomic.Bool
	log     *slog.Logger
	lastErr atomic.Pointer[error]
}

func (w *watcher) run(ctx context.Context) error {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := w.source.list(ctx, o)
			w.note(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			wi, err := w.source.watch(ctx, o)
			w.note(ctx, err)
			return wi, err
		},
	}
	cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(lw, w.source.client),
		w.example, w.store, cache.ReflectorOptions{Name: w.what, TypeDescription: w.what, Backoff: kube.WatchBackoff()},
	).RunWithContext(ctx)
	return nil
}

// note keeps the API server's last error for readiness, and logs the first of
// consecutive errors.
func (w *watcher) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		w.lastErr.Store(nil)
		return
	}
	if w.lastErr.Swap(&err) == nil {
		w.log.Warn("cannot watch, retrying", "what", w.what, "err", err)
	}
}

// missing returns nil when the first list is complete.
func (w *watcher) missing() error {
	if w.synced.Load() {
		return nil
	}
	if err := w.lastErr.Load(); err != nil {
		return fmt.Errorf("no list of %s yet: %w", w.what, *err)
	}
	return fmt.Errorf("no list of %s yet", w.what)
}

// objectStore adapts functions over one type to a cache.ReflectorStore.
type objectStore[T any] struct {
	read        func(obj any) (T, error)
	put, remove func(T)
	replace     func([]T)
	changed     *lease.Signal
	synced      atomic.Bool // the first list is in
}

var _ cache.TransformingStore = (*objectStore[int])(nil)

// as returns a read function for objects that are a T already.
func as[T any](what string) func(any) (T, error) {
	return func(obj any) (T, error) {
		t, ok := obj.(T)
		if !ok {
			return t, fmt.Errorf("watch of %s returned a %T", what, obj)
		}
		return t, nil
	}
}

// Transformer lets the watch read a list's objects one by one, before it has the
// whole list in memory.
func (s *objectStore[T]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return s.read(obj) }
}

func (s *objectStore[T]) apply(obj any, f func(T)) error {
	t, err := s.read(obj)
	if err == nil {
		f(t)
	}
	return err
}

// Add, Update, Delete, Replace and Resync implement cache.ReflectorStore.
func (s *objectStore[T]) Add(obj any) error { return s.apply(obj, s.put) }

// Update replaces an object.
func (s *objectStore[T]) Update(obj any) error { return s.apply(obj, s.put) }

// Delete removes an object.
func (s *objectStore[T]) Delete(obj any) error { return s.apply(obj, s.remove) }

// Replace replaces all objects by those of a list.
func (s *objectStore[T]) Replace(objs []any, _ string) error {
	list := make([]T, len(objs))
	for i, obj := range objs {
		t, err := s.read(obj)
		if err != nil {
			return err
		}
		list[i] = t
	}
	s.replace(list)
	s.synced.Store(true)
	s.changed.Broadcast()
	return nil
}

// Resync does nothing: there are no event handlers.
func (s *objectStore[T]) Resync() error { return nil }
