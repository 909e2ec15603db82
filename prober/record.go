package prober

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// finish takes the result of a job in. A result about an instance that is no
// more, or about a ProxyProbe that is gone, counts for nothing.
func (e *engine) finish(j job, r probe.Result) {
	j.cancel()
	e.mu.Lock()
	e.due.done(j.slow)
	var after aftermath
	if t := j.target; e.targets[j.key] == t {
		t.cancel = nil
		t.back(e.clock.Now())
		if t.epoch == j.epoch {
			after = e.record(t, j.order.generation, r)
		}
		e.due.push(t)
	}
	e.mu.Unlock()
	e.nudge()
	e.settle(j, r, after)
}

// aftermath is what is to be done about a result outside the lock.
type aftermath struct {
	from, to v1alpha1.Verdict
	trouble  bool // the first inconclusive probe for this reason
	write    bool
}

// record counts a result. What the guard does not let count is inconclusive.
func (e *engine) record(t *target, generation int64, r probe.Result) aftermath {
	now := e.clock.Now()
	r = e.guard.look(e.targets, t, r, now)
	e.metrics.observe(t, r)
	r.Message = t.learn(r, now)
	after := aftermath{from: t.tally.verdict}
	if r.Outcome == probe.Inconclusive {
		after.trouble = e.doubt(t, evidenceOf(r, generation), now)
	} else {
		e.count(t, r, generation, now)
	}
	after.to = t.tally.verdict
	after.write = t.occasion(now) != noOccasion
	return after
}

// doubt takes in a probe that told nothing about the proxy. It reports whether
// that is news.
func (e *engine) doubt(t *target, ev evidence, now time.Time) bool {
	reason := ev.result.Reason
	news := t.trouble != reason
	t.trouble = reason
	if reason == probe.ReasonCanceled {
		return false
	}
	before := t.tally.verdict
	t.tally = t.tally.wonder(e.guard.patience(t, reason), now)
	if t.tally.verdict == v1alpha1.VerdictUnknown && before != v1alpha1.VerdictUnknown {
		t.evidence = ev
		t.settle()
	}
	t.hasten(now)
	// The guard speaks for the whole fleet, once.
	return news && reason != probe.ReasonProbeTargetDown
}

// count takes in a probe that told something.
func (e *engine) count(t *target, r probe.Result, generation int64, now time.Time) {
	t.trouble = ""
	success := r.Outcome == probe.Success
	t.tally = t.tally.count(success).acquit(&t.order.healthCheck, now)
	switch {
	case success:
		t.settle()
	case t.tally.accused(&t.order.healthCheck) && t.atStake() && !t.tooEarly(now):
		e.accuse(t, r, generation, now)
	}
	if agrees(t.tally.verdict, success) {
		t.evidence = evidenceOf(r, generation)
	}
	t.met = t.met || t.tally.verdict == v1alpha1.VerdictHealthy
	if !success {
		t.hasten(now)
	}
}

// accuse asks the guard whether a full run of failures makes the target Unhealthy.
func (e *engine) accuse(t *target, r probe.Result, generation int64, now time.Time) {
	if t.accused != nil && t.accused.waits {
		t.accused.evidence = evidenceOf(r, generation)
		return
	}
	t.accused = &accusation{evidence: evidenceOf(r, generation), target: r.Target, at: now}
	e.guard.judge(e.targets, t, now)
}

func (e *engine) settle(j job, r probe.Result, after aftermath) {
	if after.write {
		e.pending(j.key)
	}
	level, msg := slog.LevelDebug, "probed"
	switch {
	case after.trouble:
		level, msg = slog.LevelWarn, "cannot probe"
	case after.from != after.to:
		level, msg = slog.LevelInfo, "verdict"
	}
	ctx := context.Background()
	if !e.log.Enabled(ctx, level) {
		return
	}
	e.log.Log(ctx, level, msg, "proxy", j.key.Name, "namespace", j.key.Namespace, "instanceID", j.order.instanceID,
		"verdict", after.to, "was", after.from, "outcome", r.Outcome.String(), "reason", r.Reason, "message", r.Message, "latency", r.Latency)
}

// report is a status to be written, and what it is about.
type report struct {
	key      types.NamespacedName
	uid      types.UID
	target   *target
	epoch    int
	occasion occasion
	status   v1alpha1.ProxyProbeStatus
	latency  time.Duration
	exit     netip.Addr
	marked   bool
}

// report returns what is to be written about a ProxyProbe now, if anything is.
func (e *engine) report(key types.NamespacedName) (report, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t, ok := e.targets[key]
	if !ok || !e.leading {
		return report{}, false
	}
	why := t.occasion(e.clock.Now())
	if why == noOccasion {
		return report{}, false
	}
	return report{
		key: key, uid: t.uid, target: t, epoch: t.epoch,
		occasion: why, status: t.status(), latency: t.lastLatency(), exit: t.exit, marked: t.marked,
	}, true
}

// written notes that a report is in the API server, in this version of the object.
func (e *engine) written(r report, version string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.targets[r.key]
	if t != r.target || t.epoch != r.epoch {
		return
	}
	now := reported{
		verdict: r.status.Verdict, latency: r.latency, exit: r.exit, marked: r.marked, at: e.clock.Now(), version: version,
	}
	if now.before(t.reported) {
		return // somebody has written since
	}
	t.reported = now
	if since := r.status.LastTransitionTime; since != nil {
		t.reported.since = since.Time
	}
}

// verdicts counts the targets by verdict.
func (e *engine) verdicts() map[v1alpha1.Verdict]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	counts := map[v1alpha1.Verdict]int{v1alpha1.VerdictUnknown: 0, v1alpha1.VerdictHealthy: 0, v1alpha1.VerdictUnhealthy: 0}
	for _, t := range e.targets {
		if known(t.tally.verdict) {
			counts[t.tally.verdict]++
		} else {
			counts[v1alpha1.VerdictUnknown]++
		}
	}
	return counts
}
