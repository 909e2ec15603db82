package prober

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

const (
	writers      = 4
	writeTimeout = 15 * time.Second
	// A verdict that could not be written is tried again at the next probe, and by
	// itself in these bounds: the next probe may be an hour away.
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// statusPatcher writes the status of the ProxyProbe with this UID, or fails.
type statusPatcher interface {
	PatchStatus(ctx context.Context, key types.NamespacedName, uid types.UID, st v1alpha1.ProxyProbeStatus) error
}

// reporter knows what is to be written. It is the engine.
type reporter interface {
	report(types.NamespacedName) (report, bool)
	written(report)
}

// writer brings verdicts to the API server. What is written is decided at the
// moment of writing: a verdict that has meanwhile flipped back, or whose
// ProxyProbe is gone, is not written at all.
type writer struct {
	api     statusPatcher
	source  reporter
	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName]
	metrics *metrics
	log     *slog.Logger
}

func newWriter(api statusPatcher, source reporter, clk clock.WithTicker, m *metrics, log *slog.Logger) *writer {
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry)
	config := workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Clock: clk}
	return &writer{
		api:     api,
		source:  source,
		queue:   workqueue.NewTypedRateLimitingQueueWithConfig(backoff, config),
		metrics: m,
		log:     log,
	}
}

// enqueue asks for a look at a ProxyProbe. It never blocks.
func (w *writer) enqueue(key types.NamespacedName) { w.queue.Add(key) }

// run writes until ctx ends. A write that has begun then is cut off; the API
// server applies it whole or not at all.
func (w *writer) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, w.queue.ShutDown)
	defer stop()
	var g errgroup.Group
	for range writers {
		g.Go(func() error {
			for w.next(ctx) {
			}
			return nil
		})
	}
	return g.Wait()
}

func (w *writer) next(ctx context.Context) bool {
	key, shutdown := w.queue.Get()
	if shutdown {
		return false
	}
	defer w.queue.Done(key)
	r, ok := w.source.report(key)
	if !ok {
		w.queue.Forget(key)
		return true
	}
	if ctx.Err() != nil { // the queue drains after its end
		return true
	}
	if err := w.write(ctx, r); err != nil {
		w.queue.AddRateLimited(key)
		return true
	}
	w.queue.Forget(key)
	return true
}

func (w *writer) write(ctx context.Context, r report) error {
	limited, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := w.api.PatchStatus(limited, r.key, r.uid, r.status)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.metrics.writes.WithLabelValues(string(r.occasion), result(err)).Inc()
	if err != nil {
		w.log.Warn("cannot write a verdict, will retry", "proxy", r.key.Name, "namespace", r.key.Namespace,
			"verdict", r.status.Verdict, "err", err)
		return err
	}
	w.source.written(r)
	return nil
}
