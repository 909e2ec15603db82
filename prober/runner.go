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
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/outage"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/schedule"
)

const (
	tick        = time.Second      // the longest that the scheduler sleeps
	frozenAfter = 30 * time.Second // the time after which a scheduler that did not run counts as frozen
	// stalledAfter is the pause of the scheduler after which missed probes are skipped:
	// the process was suspended, and would send all of them to the probe target at once.
	stalledAfter = 5 * time.Second
)

// checkFunc makes the probe of a job, and returns soon after the job's context ends.
type checkFunc func(context.Context, job) probe.Result

// runnerConfig configures a runner.
type runnerConfig struct {
	check   checkFunc
	direct  directCheck
	rules   outage.Config
	shard   v1alpha1.Shard
	workers int
	clock   clock.WithTicker
	metrics *metrics
	enqueue func(types.NamespacedName) // called when a status is to be written; must not block
	log     *slog.Logger
}

// runner holds the monitors of all proxies: it schedules probes, counts their results,
// and returns the statuses to write. It is the store of the watch: see fleet_watch.go.
type runner struct {
	runnerConfig
	jitter func(time.Duration) time.Duration // random in [0, d)

	jobs       chan job
	wake       chan struct{}             // wakes the scheduler
	wakeChecks chan struct{}             // wakes the direct checks
	awake      atomic.Pointer[time.Time] // when the scheduler last ran
	synced     chan struct{}             // closed after the first list

	mu       sync.Mutex
	monitors map[types.NamespacedName]*monitor
	due      *schedule.Lanes[*monitor]
	outage   *outage.Machine
	leading  bool      // probes and writes, else stands by
	until    time.Time // when leading ends by itself; zero for never
}

// job is one probe to make. It is a copy, so that workers need no lock.
type job struct {
	monitor *monitor // for comparison only
	slow    bool     // the monitor's, when the job was dispatched
	key     types.NamespacedName
	epoch   int
	spec    spec
	plan    plan
	ctx     context.Context
	cancel  context.CancelFunc
}

func newRunner(cfg runnerConfig) *runner {
	return &runner{
		runnerConfig: cfg,
		jitter:       func(d time.Duration) time.Duration { return rand.N(max(d, 1)) },
		jobs:         make(chan job, cfg.workers),
		wake:         make(chan struct{}, 1),
		wakeChecks:   make(chan struct{}, 1),
		synced:       make(chan struct{}),
		monitors:     map[types.NamespacedName]*monitor{},
		due:          schedule.NewLanes[*monitor](cfg.workers),
		outage:       outage.New(cfg.rules),
	}
}

// run schedules and probes until ctx ends, then cancels the probes in flight.
func (r *runner) run(ctx context.Context) error {
	var g errgroup.Group
	for range r.workers {
		g.Go(func() error { return r.work(ctx) })
	}
	g.Go(func() error {
		loop(ctx, r.clock, r.wake, func() time.Duration { return r.dispatch(ctx) })
		return nil
	})
	if r.rules.DirectCheck {
		var checks errgroup.Group
		g.Go(func() error {
			loop(ctx, r.clock, r.wakeChecks, func() time.Duration { return r.startChecks(ctx, &checks) })
			return checks.Wait()
		})
	}
	return g.Wait()
}

// loop calls step until ctx ends: when woken, and after the time that it returned.
func loop(ctx context.Context, clk clock.WithTicker, wake <-chan struct{}, step func() time.Duration) {
	timer := clk.NewTimer(tick)
	defer timer.Stop()
	for {
		timer.Reset(step())
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-timer.C():
		}
	}
}

// notify wakes the loop of a channel, unless that is due already.
func notify(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// dispatch hands due probes to free workers, and returns how long to sleep. When all
// workers are busy the rest stays due; the next worker that gets free wakes the
// scheduler.
func (r *runner) dispatch(ctx context.Context) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	last := r.awake.Swap(&now)
	if !r.mayProbe(now) {
		return tick
	}
	if gap := now.Sub(*cmp.Or(last, &now)); gap > stalledAfter || gap < 0 {
		r.log.Warn("the scheduler was suspended or the clock jumped: missed probes are skipped", "gap", gap)
		r.rephase(now)
	}
	r.applyLate(r.outage.Tick(now), now)
	for i := r.due.Next(now); i != nil; i = r.due.Next(now) {
		r.jobs <- r.begin(ctx, i.Value, now) // has room for every worker
	}
	return r.due.Wait(now, tick)
}

// begin makes the job of a monitor that is due.
func (r *runner) begin(ctx context.Context, m *monitor, now time.Time) job {
	r.metrics.lag.Observe(now.Sub(m.place.Due).Seconds())
	m.place.Start(now, m.spec.interval(), r.jitter)
	m.health.Started(now)
	j := job{monitor: m, slow: m.place.Slow, key: m.key, epoch: m.epoch, spec: m.spec, plan: m.nextPlan(now)}
	j.ctx, j.cancel = context.WithCancel(ctx)
	m.cancel = j.cancel
	return j
}

func (r *runner) work(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case j := <-r.jobs:
			r.finish(j, r.check(j.ctx, j))
		}
	}
}

// rephase skips the probes that were missed during a pause. Proxies without a verdict
// are due at once.
func (r *runner) rephase(now time.Time) {
	for _, m := range r.monitors {
		if m.health.Verdict == "" {
			m.place.Reset(now)
		} else {
			m.place.Rephase(now, m.spec.interval())
		}
		if m.place.Queued() {
			r.due.Push(&m.place)
		}
	}
}

// ready returns nil once the fleet has been listed.
func (r *runner) ready() error {
	select {
	case <-r.synced:
		return nil
	default:
		return errors.New("the ProxyProbes have not been listed yet; see the log for errors of the API server")
	}
}

// alive returns nil while the fleet is known and the scheduler runs.
func (r *runner) alive() error {
	if err := r.ready(); err != nil {
		return err
	}
	awake := r.awake.Load()
	if awake == nil || r.clock.Since(*awake) > frozenAfter {
		return errors.New("the scheduler of probes does not run")
	}
	return nil
}
