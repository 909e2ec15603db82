package standin

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// cacheFlushInterval is the period in which Metacontroller resyncs all parents if
// the manifest sets no shorter one.
const cacheFlushInterval = 30 * time.Minute

// deps are the dependencies of a controller.
type deps struct {
	Config
	manifest  json.RawMessage
	metrics   *metrics
	client    dynamic.Interface
	discovery discoverer
	transport http.RoundTripper
	events    record.EventRecorder
}

// controller runs one CompositeController.
type controller struct {
	deps
	finalizer string
	resources *resources
	hooks     struct{ sync, finalize *hook }
	queue     queue
	// informers are the running ones; some start on demand.
	informers sync.WaitGroup

	parent   *resource
	parents  *watched
	children []*childKind
	related  *relater
}

// newController discovers the manifest's resources. It fails while the API server
// does not serve them.
func newController(d deps) (*controller, error) {
	spec := d.Controller.Spec
	c := &controller{deps: d, finalizer: d.Controller.FinalizerName(), resources: newResources(d.discovery, d.client)}
	c.hooks.sync = newHook(metacontroller.HookSync, spec.Hooks.Sync, d.transport, d.Clock, d.metrics)
	c.hooks.finalize = newHook(metacontroller.HookFinalize, spec.Hooks.Finalize, d.transport, d.Clock, d.metrics)
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
	defer c.informers.Wait()
	c.queue = newQueue(c.Clock)
	defer c.queue.ShutDown()
	synced := c.watchAll(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return
	}
	ready()
	c.Log.Info("syncing", "parents", c.parent.gvr.String(), "workers", c.Workers)

	var wg sync.WaitGroup
	for range c.Workers {
		wg.Go(func() { c.work(ctx) })
	}
	wg.Go(func() { c.resyncAll(ctx) })
	<-ctx.Done()
	c.queue.ShutDown()
	wg.Wait()
}

// watchAll starts the informers of parents and children; informers of related
// objects start on demand.
func (c *controller) watchAll(ctx context.Context) []cache.InformerSynced {
	c.related = &relater{
		manifest:  c.manifest,
		hook:      newHook(metacontroller.HookCustomize, c.Controller.Spec.Hooks.Customize, c.transport, c.Clock, c.metrics),
		resources: c.resources,
		rules:     utilcache.NewExpiringWithClock(c.Clock),
		watch:     func(res *resource) *watched { return c.watch(ctx, res, cache.Indexers{}, c.relatedHandler(ctx)) },
		watching:  map[schema.GroupVersionResource]*watched{},
	}
	c.parents = c.watch(ctx, c.parent, cache.Indexers{}, c.parentHandler())
	synced := []cache.InformerSynced{c.parents.synced}
	for _, child := range c.children {
		running := c.watch(ctx, child.resource, maps.Clone(childIndexers), c.childHandler())
		child.cache = running.store
		synced = append(synced, running.synced)
	}
	return synced
}

// resyncAll enqueues every parent once per period, regardless of its backoff.
func (c *controller) resyncAll(ctx context.Context) {
	ticker := c.Clock.NewTicker(c.resyncPeriod())
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
	switch manifest := c.Controller.Spec.ResyncPeriodSeconds; {
	case c.ResyncPeriod > 0:
		return c.ResyncPeriod
	case manifest != nil:
		return time.Duration(*manifest) * time.Second
	}
	return cacheFlushInterval
}
