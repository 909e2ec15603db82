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
	// writers is enough for apiQPS while each write takes 100 ms, as on a busy API
	// server: with few writers the flips of a large fleet would trickle.
	writers      = 32
	writeTimeout = 15 * time.Second
	// A failed write is retried after the next probe, and with backoff within these
	// bounds: the next probe may be an hour away.
	minBackoff = time.Second
	maxBackoff = time.Minute
	// drainTimeout is how long pending verdicts are still written at shutdown: a
	// successor would need a full run of probes to find them.
	drainTimeout = 5 * time.Second
)

// errNotLeading means that this process does not hold the lease at the moment.
var errNotLeading = errors.New("the shard's lease is not held: another prober may be writing")

// statusPatcher replaces the status of the ProxyProbe with this UID, and returns the
// object's new resource version.
type statusPatcher interface {
	PatchStatus(ctx context.Context, key types.NamespacedName, uid types.UID, st v1alpha1.ProxyProbeStatus) (string, error)
}

// writeQueue holds the ProxyProbes whose status may have to be written. Add never
// blocks.
type writeQueue = workqueue.TypedRateLimitingInterface[types.NamespacedName]

func newWriteQueue(clk clock.WithTicker) writeQueue {
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](minBackoff, maxBackoff)
	config := workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Clock: clk}
	return workqueue.NewTypedRateLimitingQueueWithConfig(backoff, config)
}

// writer writes verdicts to the API server. The status is read at the moment of
// writing: a verdict that flipped back meanwhile, or whose ProxyProbe was deleted, is
// not written.
type writer struct {
	api      statusPatcher
	source   *runner     // of the statuses to write
	mayWrite func() bool // called before each write
	queue    writeQueue
	drain    time.Duration // for which writes continue at shutdown
	drained  chan struct{} // closed after the last write
	metrics  *metrics
	log      *slog.Logger
}

func newWriter(api statusPatcher, source *runner, queue writeQueue, mayWrite func() bool, m *metrics, log *slog.Logger) *writer {
	return &writer{
		api: api, source: source, mayWrite: mayWrite, queue: queue,
		drain: drainTimeout, drained: make(chan struct{}), metrics: m, log: log,
	}
}

// run writes until ctx ends, then drains the queue for a short while. A canceled write
// is applied whole or not at all.
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
	next, ok := w.source.statusToWrite(key)
	switch {
	case ok && ctx.Err() != nil: // the drain timed out
	case ok && w.write(ctx, next) != nil:
		w.queue.AddRateLimited(key)
	default:
		w.queue.Forget(key)
	}
	return true
}

func (w *writer) write(ctx context.Context, s statusWrite) error {
	limited, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if !w.mayWrite() {
		return errNotLeading
	}
	version, err := w.api.PatchStatus(limited, s.key, s.uid, s.status)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.metrics.writes.WithLabelValues(string(s.reason), result(err)).Inc()
	if err != nil {
		w.log.Warn("cannot write a verdict, will retry", "proxy", s.key.Name, "namespace", s.key.Namespace,
			"verdict", s.status.Verdict, "err", err)
		return err
	}
	w.source.statusWritten(s, version)
	return nil
}
