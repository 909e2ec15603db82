package standin

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// queue holds the keys of parents to reconcile. One key is processed by one
// worker at a time. Of several delays for one key (resyncAfterSeconds, 429,
// backoff) the earliest wins and drops the others.
type queue = workqueue.TypedRateLimitingInterface[string]

// newQueue returns a queue with Metacontroller's rate limits: backoff from 5 ms
// doubling to 1000 s per key, and at most 10 retries a second over all keys beyond
// a burst of 100.
func newQueue(clk clock.WithTicker) queue {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Clock: clk},
	)
}

// work reconciles parents until the queue is shut down.
func (c *controller) work(ctx context.Context) {
	for {
		key, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		c.requeue(ctx, key, c.sync(ctx, key))
		c.queue.Done(key)
	}
}

// requeue schedules the next reconcile of a parent by the result of this one.
func (c *controller) requeue(ctx context.Context, key string, err error) {
	namespace, name, _ := cache.SplitMetaNamespaceKey(key)
	log := c.Log.With("namespace", namespace, "proxy", name)
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

// resyncDelay converts resyncAfterSeconds; 0 and less schedule no resync.
func resyncDelay(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}
