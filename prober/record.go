package prober

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/health"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/outage"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// confirmAfter is the longest time until another probe, when the reason of a verdict
// changed.
const confirmAfter = 30 * time.Second

// finish records the result of a job. A result about a replaced instance or a deleted
// ProxyProbe is dropped.
func (r *runner) finish(j job, result probe.Result) {
	j.cancel()
	r.mu.Lock()
	r.due.Done(j.slow)
	var done recorded
	if m := j.monitor; r.monitors[j.key] == m {
		m.cancel = nil
		m.place.Finish(r.clock.Now())
		if m.epoch == j.epoch {
			done = r.record(m, j.spec.generation, result)
		}
		r.due.Push(&m.place)
	}
	r.mu.Unlock()
	notify(r.wake)
	if done.write {
		r.enqueue(j.key)
	}
	r.logResult(j, result, done)
}

// recorded is what remains to be done about a result without the lock.
type recorded struct {
	from, to  v1alpha1.Verdict
	newReason bool // the first inconclusive probe with this reason
	write     bool
}

// record counts a result. What an outage explains is counted as inconclusive.
func (r *runner) record(m *monitor, generation int64, result probe.Result) recorded {
	now := r.clock.Now()
	p := outage.Probe{Key: m.key, Started: m.place.Started, HealthCheck: &m.spec.healthCheck, URL: m.plans.url, Result: result}
	result, effects := r.outage.Probed(p, now)
	r.applyLate(effects, now)
	r.metrics.observe(m, result)
	result.Message = m.health.Observe(result)
	if result.OpenTested {
		m.plans.openTested, m.plans.open = now, result.Reason == probe.ReasonOpenProxy
	}
	done := recorded{from: m.health.Verdict}
	last := health.LastProbeOf(result, generation)
	if result.Outcome == probe.Inconclusive {
		done.newReason = r.countInconclusive(m, last, now)
	} else if pending := m.health.Count(result.Outcome == probe.Success, last, &m.spec.healthCheck, now); pending {
		r.apply(r.outage.ThresholdReached(p, now), now)
	}
	r.outage.SetStanding(m.key, m.standing())
	if result.Outcome != probe.Success && result.Reason != probe.ReasonCanceled && !m.health.EverHealthy {
		m.place.RetryEarly(now, m.spec.interval())
	}
	if len(m.spec.healthCheck.ProbeURLs) < 2 && m.health.Unconfirmed() { // several URLs take turns
		m.place.Within(now, confirmAfter)
	}
	done.to = m.health.Verdict
	done.write = m.health.WriteReason(now) != health.NoWrite
	return done
}

// countInconclusive counts a probe that shows nothing about the proxy, and reports
// whether its reason is to be logged.
func (r *runner) countInconclusive(m *monitor, last health.LastProbe, now time.Time) bool {
	limit := r.outage.InconclusiveLimit(last.Reason, m.spec.interval(), health.InconclusiveLimit)
	newReason, turned := m.health.CountInconclusive(last, limit, now)
	if turned {
		r.outage.Clear(m.key)
	}
	// An outage is logged once for the whole fleet.
	return newReason && last.Reason != probe.ReasonProbeTargetDown
}

func (r *runner) logResult(j job, result probe.Result, done recorded) {
	level, msg := slog.LevelDebug, "probed"
	switch {
	case done.newReason:
		level, msg = slog.LevelWarn, "cannot probe"
	case done.from != done.to:
		level, msg = slog.LevelInfo, "verdict"
	}
	ctx := context.Background()
	if !r.log.Enabled(ctx, level) {
		return
	}
	r.log.Log(ctx, level, msg, "proxy", j.key.Name, "namespace", j.key.Namespace, "instanceID", j.spec.instanceID,
		"verdict", done.to, "was", done.from, "outcome", result.Outcome.String(), "reason", result.Reason, "message", result.Message, "latency", result.Latency)
}

// statusWrite is a status to write, and what it is about.
type statusWrite struct {
	key     types.NamespacedName
	uid     types.UID
	monitor *monitor
	epoch   int
	reason  health.WriteReason
	status  v1alpha1.ProxyProbeStatus
	written health.Written
}

// statusToWrite returns the status that is to be written to a ProxyProbe now, false
// for none.
func (r *runner) statusToWrite(key types.NamespacedName) (statusWrite, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.monitors[key]
	if !ok || !r.leading {
		return statusWrite{}, false
	}
	why := m.health.WriteReason(r.clock.Now())
	if why == health.NoWrite {
		return statusWrite{}, false
	}
	return statusWrite{
		key: key, uid: m.uid, monitor: m, epoch: m.epoch,
		reason: why, status: m.health.Status(m.spec.instanceID), written: m.health.Written(why),
	}, true
}

// statusWritten notes that a status is stored, in this version of the object.
func (r *runner) statusWritten(w statusWrite, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.monitors[w.key]; m == w.monitor && m.epoch == w.epoch {
		m.health.Wrote(&w.status, w.written, version, r.clock.Now())
	}
}

// verdicts counts the monitors by verdict.
func (r *runner) verdicts() map[v1alpha1.Verdict]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[v1alpha1.Verdict]int{v1alpha1.VerdictUnknown: 0, v1alpha1.VerdictHealthy: 0, v1alpha1.VerdictUnhealthy: 0}
	for _, m := range r.monitors {
		if health.Decided(m.health.Verdict) {
			counts[m.health.Verdict]++
		} else {
			counts[v1alpha1.VerdictUnknown]++
		}
	}
	return counts
}
