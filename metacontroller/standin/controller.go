package standin

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// cacheFlushInterval is the period in which Metacontroller resyncs all parents if
// the manifest sets no shorter one.
const cacheFlushInterval = 30 * time.Minute

// deps are the dependencies of a controller.
type deps struct {
	spec      *metacontroller.Controller
	manifest  json.RawMessage
	client    dynamic.Interface
	discovery discoverer
	transport http.RoundTripper
	events    record.EventRecorder
	clock     clock.WithTicker
	log       *slog.Logger
	metrics   *metrics
	workers   int
	resync    time.Duration
}

// controller runs one CompositeController.
type controller struct {
	deps
	finalizer    string
	ignoreStatus bool
	resources    *resources
	hooks        hookSet
	queue        queue

	parent   *resource
	parents  *watched
	children []*childKind
	related  *relater
}

type hookSet struct {
	sync, finalize *hook
}

// newController discovers the manifest's resources. It fails while the API server
// does not serve them.
func newController(d deps) (*controller, error) {
	spec := d.spec.Spec
	c := &controller{
		deps:         d,
		finalizer:    d.spec.FinalizerName(),
		ignoreStatus: metacontroller.Enabled(spec.ParentResource.IgnoreStatusChanges),
		resources:    newResources(d.discovery, d.client),
		hooks: hookSet{
			sync:     newHook(metacontroller.HookSync, spec.Hooks.Sync, d.transport, d.clock, d.metrics),
			finalize: newHook(metacontroller.HookFinalize, spec.Hooks.Finalize, d.transport, d.clock, d.metrics),
		},
	}
	var err error
	if c.parent, err = c.resources.byRef(spec.ParentResource.ResourceRef); err != nil {
		return nil, err
	}
	for _, child := range spec.ChildResources {
		res, err := c.resources.byRef(child.ResourceRef)
		if err != nil {
			return nil, err
		}
		c.children = append(c.children, &childKind{resource: res, method: child.UpdateStrategy.Method})
	}
	return c, nil
}

// run syncs until ctx ends and all its goroutines have stopped. It calls ready
// once the caches are synced.
func (c *controller) run(ctx context.Context, ready func()) {
	w := &watcher{ctx: ctx, client: c.client, log: c.log}
	defer w.wg.Wait()
	c.queue = newQueue(c.clock)
	defer c.queue.ShutDown()
	synced := c.watchAll(ctx, w)
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return
	}
	ready()
	c.log.Info("syncing", "parents", c.parent.gvr.String(), "workers", c.workers)

	var wg sync.WaitGroup
	for range c.workers {
		wg.Go(func() { c.work(ctx) })
	}
	wg.Go(func() { c.resyncAll(ctx) })
	<-ctx.Done()
	c.queue.ShutDown()
	wg.Wait()
}

// watchAll starts the informers of parents and children; informers of related
// objects start on demand.
func (c *controller) watchAll(ctx context.Context, w *watcher) []cache.InformerSynced {
	c.related = &relater{
		manifest:  c.manifest,
		hook:      newHook(metacontroller.HookCustomize, c.spec.Spec.Hooks.Customize, c.transport, c.clock, c.metrics),
		resources: c.resources,
		clock:     c.clock,
		watch: func(res *resource) *watched {
			return w.start(res, cache.Indexers{}, c.relatedHandler(ctx))
		},
		rules:    map[rulesKey]cachedRules{},
		watching: map[schema.GroupVersionResource]*watched{},
	}
	c.parents = w.start(c.parent, cache.Indexers{}, c.parentHandler())
	synced := []cache.InformerSynced{c.parents.synced}
	for _, child := range c.children {
		running := w.start(child.resource, childIndexers(), c.childHandler())
		child.cache = running.store
		synced = append(synced, running.synced)
	}
	return synced
}

// resyncAll enqueues every parent once per period, regardless of its backoff.
func (c *controller) resyncAll(ctx context.Context) {
	ticker := c.clock.NewTicker(c.resyncPeriod())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			for _, parent := range c.cachedParents() {
				c.enqueue(parent)
			}
		}
	}
}

func (c *controller) resyncPeriod() time.Duration {
	switch manifest := c.spec.Spec.ResyncPeriodSeconds; {
	case c.resync > 0:
		return c.resync
	case manifest != nil:
		return time.Duration(*manifest) * time.Second
	}
	return cacheFlushInterval
}
