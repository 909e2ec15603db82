package prober

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

const (
	// tick is the longest that the scheduler sleeps.
	tick = time.Second
	// frozenAfter is how long the scheduler may not have been seen awake before
	// it counts as frozen.
	frozenAfter = 30 * time.Second
	// stalledAfter is how long the scheduler must have slept for missed probes not
	// to be made up for: the process was frozen, and would hit the probe's target
	// with all of them at once.
	stalledAfter = 5 * time.Second
)

// checkFunc probes what a job asks for, once, and returns soon after the job's
// context ends.
type checkFunc func(context.Context, job) probe.Result

// engine owns the health of every target: it schedules probes, counts their
// results towards verdicts, and says which verdicts are to be written. It is
// the store of the watch: see intake.go.
type engine struct {
	check   checkFunc
	shard   v1alpha1.Shard
	clock   clock.WithTicker
	jitter  func(time.Duration) time.Duration // random in [0, d)
	metrics *metrics
	guard   *guard
	log     *slog.Logger
	pending func(types.NamespacedName) // called when a verdict is to be written

	jobs  chan job
	wake  chan struct{}
	awake atomic.Pointer[time.Time] // when the scheduler was last seen at work
	known chan struct{}             // closed when the fleet is known

	mu      sync.Mutex
	targets map[types.NamespacedName]*target
	due     lanes
	leading bool      // probes and reports, else stands by
	until   time.Time // then leading ends by itself; zero for never
}

// job is one probe to make: a snapshot, so that workers need no lock.
type job struct {
	target *target // for its identity alone
	slow   bool    // the target was, when the job was handed out
	key    types.NamespacedName
	epoch  int
	order  order
	plan   plan
	ctx    context.Context
	cancel context.CancelFunc
}

func newEngine(check checkFunc, shard v1alpha1.Shard, workers int, clk clock.WithTicker, m *metrics, log *slog.Logger) *engine {
	e := &engine{
		check:   check,
		shard:   shard,
		due:     lanes{workers: workers},
		clock:   clk,
		jitter:  func(d time.Duration) time.Duration { return rand.N(max(d, 1)) },
		metrics: m,
		guard:   newGuard(GuardConfig{}, nil, clk, m, log),
		log:     log,
		pending: func(types.NamespacedName) {},
		jobs:    make(chan job, workers),
		wake:    make(chan struct{}, 1),
		known:   make(chan struct{}),
		targets: map[types.NamespacedName]*target{},
	}
	e.guard.pending = func(key types.NamespacedName) { e.pending(key) }
	return e
}

// run schedules and probes until ctx ends, then cuts off the probes in flight.
func (e *engine) run(ctx context.Context) error {
	var g errgroup.Group
	for range e.due.workers {
		g.Go(func() error { return e.work(ctx) })
	}
	g.Go(func() error { return e.schedule(ctx) })
	if e.guard.cfg.DirectCheck {
		g.Go(func() error { return e.watchTargets(ctx) })
	}
	return g.Wait()
}

func (e *engine) schedule(ctx context.Context) error {
	timer := e.clock.NewTimer(tick)
	defer timer.Stop()
	for {
		timer.Reset(e.dispatch(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-e.wake:
		case <-timer.C():
		}
	}
}

// dispatch hands out what is due while there are free workers, and returns how
// long to sleep. When all are busy the rest stays due; the next worker to get
// free wakes the scheduler.
func (e *engine) dispatch(ctx context.Context) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	last := e.awake.Swap(&now)
	if !e.mayProbe(now) {
		return tick
	}
	if gap := now.Sub(*cmp.Or(last, &now)); gap > stalledAfter || gap < 0 {
		e.log.Warn("the scheduler stood still or the clock jumped: missed probes are left out", "gap", gap)
		e.rephase(now)
	}
	e.guard.tend(e.targets, now)
	for t := e.due.next(now); t != nil; t = e.due.next(now) {
		e.jobs <- e.begin(ctx, t, now) // has room for every worker
	}
	return e.due.wait(now, tick)
}

// begin makes the job of a target that next took out. The next one is due an interval
// after this one was, even if this one starts late, so that each target keeps its
// phase, but not before half an interval has passed. After the first of an instance
// the next is up to half an interval early: proxies created together drift apart and
// do not hit the probe's target all at once for ever.
func (e *engine) begin(ctx context.Context, t *target, now time.Time) job {
	e.metrics.lag.Observe(now.Sub(t.due).Seconds())
	interval := t.order.interval()
	if t.spread {
		t.due, t.spread = now.Add(interval-e.jitter(interval/2)), false
	} else {
		t.due = t.due.Add(interval)
		if soon := now.Add(interval / 2); t.due.Before(soon) {
			t.due = soon
		}
	}
	t.started = now
	j := job{target: t, slow: t.slow, key: t.key, epoch: t.epoch, order: t.order, plan: t.plan(now)}
	j.ctx, j.cancel = context.WithCancel(ctx)
	t.cancel = j.cancel
	return j
}

func (e *engine) work(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case j := <-e.jobs:
			e.finish(j, e.check(j.ctx, j))
		}
	}
}

// nudge makes the scheduler look again.
func (e *engine) nudge() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// ready returns nil when the fleet is known.
func (e *engine) ready() error {
	select {
	case <-e.known:
		return nil
	default:
		return errors.New("the ProxyProbes have not been listed yet; see the log for errors of the API server")
	}
}

// leads reports whether this process is the one that probes.
func (e *engine) leads() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leading
}

// alive returns nil when the fleet is known and the scheduler at work.
func (e *engine) alive() error {
	if err := e.ready(); err != nil {
		return err
	}
	awake := e.awake.Load()
	if awake == nil || e.clock.Since(*awake) > frozenAfter {
		return errors.New("the scheduler of probes is not at work")
	}
	return nil
}
