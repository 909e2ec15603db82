package standin

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// queue holds the keys of parents to sync. It never hands out a key that is
// being worked on. Of several delays for one key the earliest wins, whether it
// comes from a resyncAfterSeconds, a 429 or a back-off, and firing one drops
// the others.
type queue = workqueue.TypedRateLimitingInterface[string]

// newQueue returns the queue that Metacontroller has: back-off from 5 ms
// doubling to 1000 s per key, and at most 10 retries a second beyond a burst of
// 100 over all keys.
func newQueue(clk clock.WithTicker) queue {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Clock: clk},
	)
}

// work syncs parents until the queue is shut down.
func (c *controller) work(ctx context.Context) {
	for {
		key, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		c.settle(ctx, key, c.sync(ctx, key))
		c.queue.Done(key)
	}
}

// settle decides when a parent that has just been synced is synced again.
func (c *controller) settle(ctx context.Context, key string, err error) {
	namespace, name, _ := cache.SplitMetaNamespaceKey(key)
	log := c.log.With("namespace", namespace, "proxy", name)
	var busy *busyError
	switch {
	case err == nil:
		c.queue.Forget(key)
		c.metrics.syncs.WithLabelValues("ok").Inc()
	case ctx.Err() != nil:
		// Stopping.
	case errors.As(err, &busy):
		log.Info("hook is busy", "hook", busy.hook, "after", busy.after.String())
		c.queue.AddAfter(key, busy.after)
		c.metrics.syncs.WithLabelValues("busy").Inc()
	case errors.Is(err, errRelatedNotSynced):
		c.queue.AddRateLimited(key)
		c.metrics.syncs.WithLabelValues("waiting").Inc()
	default:
		c.queue.AddRateLimited(key)
		log.Warn("sync failed", "failures", c.queue.NumRequeues(key), "err", err)
		c.metrics.syncs.WithLabelValues("error").Inc()
	}
}

// resyncDelay is resyncAfterSeconds as a duration; 0 and less ask for nothing.
func resyncDelay(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}
