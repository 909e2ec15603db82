package prober

import (
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// GuardConfig says when failures are not held against proxies.
type GuardConfig struct {
	// DirectCheck fetches the probe URL without a proxy before a proxy is called
	// Unhealthy for what may be the target's fault.
	DirectCheck bool
	// TargetHold is for how long probes that fail with their target leave a verdict
	// as it is. After that nothing is known of the proxy.
	TargetHold time.Duration
	// FleetShare of the Healthy proxies that must fail at once for all verdicts to
	// be held, 0 for never.
	FleetShare float64
	// FleetHold is for how long they are then held at most.
	FleetHold time.Duration
}

const (
	// fleetLeast is how small a fleet says nothing by failing together.
	fleetLeast = 10
	// fleetWindow is how long ago a flip still counts as at once.
	fleetWindow = time.Minute
	// fleetMeasure is how often the fleet is counted at most.
	fleetMeasure = time.Second
	// sweepEvery is how often targets are forgotten that nobody asks any more.
	sweepEvery = time.Minute
	// mostMarks is how many statuses say that verdicts are held. All of a large fleet
	// would be as many writes as the flips that they are to prevent.
	mostMarks = 16
)

// guard keeps a broken probe target, or a network that is broken on the prober's
// side, from being taken for the death of the fleet. The engine's lock guards
// it. It has two rules:
//
//   - A target whose direct check fails too is down: failures that may be its
//     doing do not count, and a flip waits for a direct check that was begun after
//     it and works (site.go, direct.go).
//   - When a large share of the fleet fails at once, nothing becomes Unhealthy for
//     a while, whatever the failures look like (fleet.go).
type guard struct {
	cfg     GuardConfig
	check   directCheck
	clock   clock.WithTicker
	metrics *metrics
	log     *slog.Logger
	wake    chan struct{}
	pending func(types.NamespacedName)

	sites map[string]*site // by host:port of the probe URL
	swept time.Time        // when the idle ones were last forgotten
	fleet fleetWatch
	marks int
}

func newGuard(cfg GuardConfig, check directCheck, clk clock.WithTicker, m *metrics, log *slog.Logger) *guard {
	return &guard{
		cfg: cfg, check: check, clock: clk, metrics: m, log: log,
		wake: make(chan struct{}, 1), pending: func(types.NamespacedName) {}, sites: map[string]*site{},
	}
}

// look takes note of a result and returns it, as inconclusive where it must not
// count.
func (g *guard) look(fleet map[types.NamespacedName]*target, t *target, r probe.Result, now time.Time) probe.Result {
	if r.Outcome == probe.Failure && t.atStake() || !g.fleet.since.IsZero() {
		g.fleetFails(fleet, now) // to see it begin and end
	}
	if r.Outcome == probe.Failure {
		g.attribute(t, now) // those before this one
	}
	if !g.cfg.DirectCheck || r.Target == "" {
		return r
	}
	switch {
	case r.Outcome == probe.Success:
		if s := g.sites[r.Target]; s != nil && s.reached(t.started) {
			g.nudge()
		}
	case r.Outcome == probe.Failure && r.Reason.Far() && t.atStake():
		s := g.site(r.Target, t, now)
		switch {
		case s.down:
			s.failed++
			g.mark(t, s.excuse())
			return held(r, t.trial)
		case t.started.Before(s.back):
			return held(r, s.name+" was down when the probe began")
		case !s.void:
			t.suspect(s, now)
		}
		s.wanted = true
		g.nudge()
	}
	return r
}

// attribute notes that the failures so far are the proxy's own: no target may be to
// blame, or it worked when it was asked after the newest. An outage that comes later
// takes nothing of that back, or else a target that is away now and then would keep a
// dead proxy Healthy for ever. While the fleet is held that proves nothing, nor for
// the failures that made it be noticed.
func (g *guard) attribute(t *target, now time.Time) {
	if t.mixed || t.behind != nil && !t.behind.good.After(t.failedAt) || g.holding(now) {
		return
	}
	t.tally.own, t.behind = t.tally.failures, nil
}

// tend ends what no probe is going to end: proxies may be deleted, or be given
// another probe URL, while verdicts are held because of them.
func (g *guard) tend(fleet map[types.NamespacedName]*target, now time.Time) {
	if !g.fleet.since.IsZero() {
		g.fleetFails(fleet, now)
	}
	if age := now.Sub(g.swept); age >= sweepEvery || age < 0 {
		g.swept = now
		g.sweep(now)
	}
}

// rest forgets every suspicion: another process probes from here on.
func (g *guard) rest() {
	for _, s := range g.sites {
		g.forget(s)
	}
	g.fleet, g.marks = fleetWatch{}, 0
	g.metrics.targetDown.WithLabelValues(causeFleet).Set(0)
}

// held is the result of a probe whose failure must not count.
func held(r probe.Result, why string) probe.Result {
	r.Outcome, r.Message = probe.Inconclusive, fmt.Sprintf("%s (%s); held: %s", r.Message, r.Reason, why)
	r.Reason = probe.ReasonProbeTargetDown
	return r
}

// judge decides about an accused target: Unhealthy, or not yet.
func (g *guard) judge(fleet map[types.NamespacedName]*target, t *target, now time.Time) {
	if g.fleetFails(fleet, now) {
		g.mark(t, g.fleet.text)
		return
	}
	if a := t.accused; g.cfg.DirectCheck && a.target != "" && a.evidence.result.Reason.Far() {
		if s := g.site(a.target, t, now); !s.void && s.good.Before(t.accused.at) {
			s.waiting = append(s.waiting, t)
			t.accused.waits = true
			g.nudge()
			return
		}
	}
	t.condemn(now)
}

// patience is how many probes in a row may tell nothing before nothing is known
// any more.
func (g *guard) patience(t *target, reason probe.Reason) int32 {
	if reason != probe.ReasonProbeTargetDown {
		return unsureAfter
	}
	return max(unsureAfter, int32(min(g.cfg.TargetHold/t.order.interval(), 1<<20)))
}

// mark notes that the target's verdict is held, and has some of the statuses say
// so.
func (g *guard) mark(t *target, text string) {
	t.trial = text
	if t.held {
		return
	}
	t.held = true
	if g.marks < mostMarks {
		g.marks++
		t.marked = true
	}
}

// over ends a time in which the fleet failed as a whole: what failed meanwhile is
// forgotten.
func (g *guard) over(fleet map[types.NamespacedName]*target) {
	for _, t := range fleet {
		if t.atStake() {
			t.forget()
		}
	}
	g.resume(fleet)
}

// resume lets flips happen again. A status that says that its verdict is held is put
// right by the next probe.
func (g *guard) resume(fleet map[types.NamespacedName]*target) {
	g.marks = 0
	for key, t := range fleet {
		if !t.atStake() {
			continue
		}
		if t.marked {
			g.pending(key)
		}
		t.release()
	}
}

func (g *guard) nudge() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}
