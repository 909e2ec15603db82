package prober

import (
	"context"
	"errors"
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
	// drainTime is how long the verdicts that are known are still written after the
	// end: a successor would need a run of probes of its own to find them.
	drainTime = 5 * time.Second
)

// errNotLeading: the lease is not ours at the moment.
var errNotLeading = errors.New("the shard's lease is not held: another prober may be at work")

// statusPatcher writes the status of the ProxyProbe with this UID, and returns the
// object's resource version, or fails.
type statusPatcher interface {
	PatchStatus(ctx context.Context, key types.NamespacedName, uid types.UID, st v1alpha1.ProxyProbeStatus) (string, error)
}

// reporter knows what is to be written. It is the engine.
type reporter interface {
	report(types.NamespacedName) (report, bool)
	written(r report, version string)
}

// writer brings verdicts to the API server. What is written is decided at the
// moment of writing: a verdict that has meanwhile flipped back, or whose
// ProxyProbe is gone, is not written at all.
type writer struct {
	api      statusPatcher
	source   reporter
	mayWrite func() bool // asked before each write
	queue    workqueue.TypedRateLimitingInterface[types.NamespacedName]
	drain    time.Duration // how long to go on after the end
	drained  chan struct{} // closed after the last write
	metrics  *metrics
	log      *slog.Logger
}

func newWriter(api statusPatcher, source reporter, mayWrite func() bool, clk clock.WithTicker, m *metrics, log *slog.Logger) *writer {
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry)
	config := workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Clock: clk}
	return &writer{
		api:      api,
		source:   source,
		mayWrite: mayWrite,
		queue:    workqueue.NewTypedRateLimitingQueueWithConfig(backoff, config),
		drain:    drainTime,
		drained:  make(chan struct{}),
		metrics:  m,
		log:      log,
	}
}

// enqueue asks for a look at a ProxyProbe. It never blocks.
func (w *writer) enqueue(key types.NamespacedName) { w.queue.Add(key) }

// run writes until ctx ends, and then what is still queued, for a short while.
// A write that is cut off is applied whole or not at all.
func (w *writer) run(ctx context.Context) error {
	defer close(w.drained)
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		w.queue.ShutDown()
		time.AfterFunc(w.drain, cancel)
	})
	defer stop()
	var g errgroup.Group
	for range writers {
		g.Go(func() error {
			for w.next(work) {
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
	if ctx.Err() != nil { // too late
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
	if !w.mayWrite() {
		return errNotLeading
	}
	version, err := w.api.PatchStatus(limited, r.key, r.uid, r.status)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.metrics.writes.WithLabelValues(string(r.occasion), result(err)).Inc()
	if err != nil {
		w.log.Warn("cannot write a verdict, will retry", "proxy", r.key.Name, "namespace", r.key.Namespace,
			"verdict", r.status.Verdict, "err", err)
		return err
	}
	w.source.written(r, version)
	return nil
}
