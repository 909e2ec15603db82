package prober

import (
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// Bounds on reports of a latency that changed without a change of verdict: they
// keep a proxy that jitters from writing for ever.
const (
	minLatencyChange  = 20 * time.Millisecond
	minReportInterval = time.Minute
)

const (
	// unsureAtFirst is how many probes in a row without a result it takes to say so
	// of an instance that has no verdict yet.
	unsureAtFirst = 3
	// unsureAfter is how many it takes for a verdict to be given up. They are
	// counted, not timed, so that a clock that jumps gives up none.
	unsureAfter = 10
	// firstCondemned is how long an instance that is new has at least before it is
	// called Unhealthy: what serves in it may still be starting.
	firstCondemned = 10 * time.Second
)

// tally counts probes of one instance towards a verdict. The zero value knows
// nothing.
type tally struct {
	verdict   v1alpha1.Verdict
	since     time.Time // when the verdict became what it is
	successes int32     // in a row
	failures  int32     // in a row
	own       int32     // of these, as many as no target or network is to blame for
	unsure    int32     // in a row, since the last success or failure
}

// known reports whether v is a verdict at all.
func known(v v1alpha1.Verdict) bool {
	return v == v1alpha1.VerdictHealthy || v == v1alpha1.VerdictUnhealthy
}

// add counts one probe and judges.
func (t tally) add(success bool, hc *v1alpha1.HealthCheck, at time.Time) tally {
	t = t.count(success).acquit(hc, at)
	if t.accused(hc) {
		return t.turn(v1alpha1.VerdictUnhealthy, at)
	}
	return t
}

// count counts one probe, without a judgement.
func (t tally) count(success bool) tally {
	t.unsure = 0
	if success {
		t.successes, t.failures, t.own = t.successes+1, 0, 0
	} else {
		t.successes, t.failures = 0, t.failures+1
	}
	return t
}

// forget drops the failures that something else may be to blame for.
func (t tally) forget() tally {
	t.failures = t.own
	return t
}

// acquit turns to Healthy at the end of a full run of successes.
func (t tally) acquit(hc *v1alpha1.HealthCheck, at time.Time) tally {
	if t.successes >= hc.SuccessThreshold {
		return t.turn(v1alpha1.VerdictHealthy, at)
	}
	return t
}

// accused reports whether a full run of failures speaks for Unhealthy, whatever
// the verdict is.
func (t tally) accused(hc *v1alpha1.HealthCheck) bool { return t.failures >= hc.FailureThreshold }

// wonder counts one probe that told nothing. After a run of them nothing is known
// any more. A run of failures does not end by it.
func (t tally) wonder(most int32, at time.Time) tally {
	t.unsure++
	if !known(t.verdict) {
		most = unsureAtFirst
	}
	if t.unsure >= most {
		t.failures, t.own, t.successes = 0, 0, 0
		return t.turn(v1alpha1.VerdictUnknown, at)
	}
	return t
}

func (t tally) turn(to v1alpha1.Verdict, at time.Time) tally {
	if t.verdict != to {
		t.verdict, t.since = to, at
	}
	return t
}

// agrees reports whether a probe that told something speaks for the verdict.
func agrees(v v1alpha1.Verdict, success bool) bool {
	return known(v) && success == (v == v1alpha1.VerdictHealthy)
}

// reported is what ProxyProbe.status says of the instance, as far as it is ours.
// It moves on only when a write succeeded, so that a lost write is made again.
type reported struct {
	verdict v1alpha1.Verdict
	since   time.Time
	latency time.Duration
	exit    netip.Addr
	marked  bool      // as held back by the guard
	at      time.Time // of the write
	version string    // resource version of the object then, "" for not known
}

// reportedIn is what a ProxyProbe's status says about an instance. The zero value
// says nothing.
func reportedIn(p *v1alpha1.ProxyProbe, instanceID string, now time.Time) reported {
	st, r := &p.Status, reported{version: p.ResourceVersion}
	if st.InstanceID != instanceID {
		return r
	}
	r.verdict = st.Verdict
	if !known(st.Verdict) {
		return r
	}
	r.marked = st.Reason == string(probe.ReasonProbeTargetDown)
	r.exit, _ = netip.ParseAddr(st.ExitIP) // ours; anything else counts as none
	if st.LastTransitionTime != nil {
		r.since = st.LastTransitionTime.Time
	}
	if st.LatencyMillis != nil { // no probe takes a day, and more could overflow
		const day = 24 * 60 * 60 * 1000
		r.latency = time.Duration(min(max(*st.LatencyMillis, 0), day)) * time.Millisecond
	}
	// As a time on our clock: one that ran ahead must not hold back reports, nor one
	// that is set back from here on.
	if st.LastProbeTime != nil {
		r.at = now.Add(-max(0, now.Sub(st.LastProbeTime.Time)))
	}
	return r
}

// before reports whether r is older than other for certain.
func (r reported) before(other reported) bool {
	order, err := resourceversion.CompareResourceVersion(r.version, other.version)
	return err == nil && order < 0
}

// occasion is why a status is written.
type occasion string

// The occasions, and none.
const (
	noOccasion      occasion = ""
	firstVerdict    occasion = "first_verdict"
	flip            occasion = "flip"
	changeOfLatency occasion = "latency"
	changeOfExit    occasion = "exit"
	changeOfMark    occasion = "held"
)

// occasion says whether the status must be written now. latency is that of the
// newest probe that agrees with the verdict, 0 when there is none yet.
func (r reported) occasion(t tally, latency time.Duration, now time.Time) occasion {
	switch {
	case !known(t.verdict):
		return r.occasionOfDoubt(t)
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

// occasionOfDoubt is occasion without a verdict: readers are told once that there
// is none, whether or not they had one.
func (r reported) occasionOfDoubt(t tally) occasion {
	switch {
	case t.verdict != v1alpha1.VerdictUnknown || r.verdict == v1alpha1.VerdictUnknown:
		return noOccasion
	case known(r.verdict):
		return flip
	}
	return firstVerdict
}
