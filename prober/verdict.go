package prober

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// Bounds on reports of a latency that changed without a change of verdict: they
// keep a proxy that jitters from writing for ever.
const (
	minLatencyChange  = 20 * time.Millisecond
	minReportInterval = time.Minute
)

// tally counts probes of one instance towards a verdict. The zero value knows
// nothing.
type tally struct {
	verdict   v1alpha1.Verdict
	since     time.Time // when the verdict became what it is
	successes int32     // in a row
	failures  int32     // in a row
}

// known reports whether v is a verdict at all.
func known(v v1alpha1.Verdict) bool {
	return v == v1alpha1.VerdictHealthy || v == v1alpha1.VerdictUnhealthy
}

// add counts one probe. The verdict changes only at the end of a full run of
// successes or failures, the first verdict too.
func (t tally) add(success bool, hc *v1alpha1.HealthCheck, at time.Time) tally {
	if success {
		t.successes, t.failures = t.successes+1, 0
		if t.successes >= hc.SuccessThreshold {
			return t.turn(v1alpha1.VerdictHealthy, at)
		}
		return t
	}
	t.successes, t.failures = 0, t.failures+1
	if t.failures >= hc.FailureThreshold {
		return t.turn(v1alpha1.VerdictUnhealthy, at)
	}
	return t
}

func (t tally) turn(to v1alpha1.Verdict, at time.Time) tally {
	if t.verdict != to {
		t.verdict, t.since = to, at
	}
	return t
}

// agrees reports whether a probe speaks for the verdict.
func agrees(v v1alpha1.Verdict, success bool) bool {
	return known(v) && success == (v == v1alpha1.VerdictHealthy)
}

// reported is what ProxyProbe.status says of the instance, as far as it is ours.
// It moves on only when a write succeeded, so that a lost write is made again.
type reported struct {
	verdict v1alpha1.Verdict
	since   time.Time
	latency time.Duration
	at      time.Time // of the write
}

// occasion is why a status is written.
type occasion string

// The three occasions, and none.
const (
	noOccasion      occasion = ""
	firstVerdict    occasion = "first_verdict"
	flip            occasion = "flip"
	changeOfLatency occasion = "latency"
)

// occasion says whether the status must be written now. latency is that of the
// newest probe that agrees with the verdict, 0 when there is none yet.
func (r reported) occasion(t tally, latency time.Duration, now time.Time) occasion {
	switch {
	case !known(t.verdict):
		return noOccasion
	case !known(r.verdict):
		return firstVerdict
	case t.verdict != r.verdict:
		return flip
	case t.verdict != v1alpha1.VerdictHealthy || latency == 0:
		return noOccasion
	case now.Sub(r.at) < minReportInterval:
		return noOccasion
	case (latency - r.latency).Abs() > max(minLatencyChange, r.latency/2):
		return changeOfLatency
	}
	return noOccasion
}
