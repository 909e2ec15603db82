package prober

import (
	"context"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// maxMessage is the bound of status.message in the CRD, in characters.
const maxMessage = 1024

// evidence is the newest probe that agrees with the verdict.
type evidence struct {
	result     finding
	generation int64
}

// finding is what a status says of a probe. The whole result of one for each
// target would be megabytes.
type finding struct {
	Reason  probe.Reason
	Message string
	Latency time.Duration
	Start   time.Time
}

func evidenceOf(r probe.Result, generation int64) evidence {
	return evidence{finding{Reason: r.Reason, Message: r.Message, Latency: r.Latency, Start: r.Start}, generation}
}

// target is all that the prober keeps of one ProxyProbe. The engine's lock
// guards it.
type target struct {
	key   types.NamespacedName
	uid   types.UID
	order order
	// epoch counts the instances that this target had. What was begun in another
	// epoch is about another instance.
	epoch int

	tally    tally
	reported reported
	evidence evidence
	trouble  probe.Reason // of the last inconclusive probe, "" after a conclusive one
	life

	due     time.Time // of the next probe
	index   int       // in the schedule, -1 while a probe is in flight
	spread  bool      // the next but one probe is due early, see begin
	started time.Time // of the last probe
	slow    bool      // the last probe took long, see lanes
	cancel  context.CancelFunc

	series series
}

// seed takes over the verdict that another process wrote about the same instance.
// Counters stay at zero, so that a flip needs a full run. It reports whether there
// was such a verdict.
func (t *target) seed(p *v1alpha1.ProxyProbe, now time.Time) bool {
	t.reported = reportedIn(p, t.order.instanceID, now)
	t.fallBack()
	t.slow = t.reported.latency >= slowAfter
	return known(t.reported.verdict)
}

// fallBack makes what the API server has the verdict. If it is that nothing is known,
// that is found out anew.
func (t *target) fallBack() {
	t.tally, t.evidence, t.trouble = tally{}, evidence{}, ""
	t.settle()
	if r := t.reported; known(r.verdict) {
		t.tally = tally{verdict: r.verdict, since: r.since}
		t.met, t.exit, t.lastExit = true, r.exit, r.exit
	}
}

// heed looks at the status of a ProxyProbe that changed. Mostly it is the one that
// we wrote. If not, another process did that led before us or leads now: then its
// verdict is the verdict. A status that is none of this instance any more is
// written anew.
func (t *target) heed(p *v1alpha1.ProxyProbe, now time.Time) {
	r := reportedIn(p, t.order.instanceID, now)
	if r.before(t.reported) {
		return // from before our last write
	}
	switch r.verdict {
	case t.reported.verdict:
		t.reported.version = r.version
	case t.tally.verdict, "":
		t.reported = r
	default:
		t.seed(p, now)
	}
}

// restart begins afresh on another instance.
func (t *target) restart(o order, now time.Time) {
	t.epoch++
	t.order, t.due, t.spread = o, now, true
	t.tally, t.reported, t.evidence, t.trouble, t.life = tally{}, reported{}, evidence{}, "", life{}
	if t.cancel != nil {
		t.cancel()
	}
}

// edit takes over a spec about the same instance. Verdict and counters stay;
// another interval counts from the last probe.
func (t *target) edit(o order, now time.Time) {
	if o.interval() != t.order.interval() {
		next := t.started.Add(o.interval())
		if t.started.IsZero() {
			next = earlier(t.due, now.Add(o.interval()))
		}
		t.due = next
	}
	t.order = o
}

// back notes that a probe is over. A probe that took longer than the interval
// was due again meanwhile: it queues behind those that have waited, not before.
func (t *target) back(now time.Time) {
	t.slow = now.Sub(t.started) >= slowAfter
	if t.due.Before(now) {
		t.due = now
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (t *target) occasion(now time.Time) occasion {
	if why := t.reported.occasion(t.tally, t.evidence.result.Latency, now); why != noOccasion {
		return why
	}
	switch {
	case t.marked != t.reported.marked && (t.marked || t.evidence.result.Reason != ""):
		return changeOfMark
	case t.tally.verdict != v1alpha1.VerdictHealthy || t.evidence.result.Reason == "" || now.Sub(t.reported.at) < minReportInterval:
		return noOccasion
	case t.exit != t.reported.exit:
		return changeOfExit
	}
	return noOccasion
}

// status is what to write about the target.
func (t *target) status() v1alpha1.ProxyProbeStatus {
	r := t.evidence.result
	latency := t.lastLatency().Milliseconds()
	if r.Reason == "" { // no probe since this process began speaks for the verdict
		r.Start = t.reported.at
	}
	since := t.tally.since
	if t.tally.verdict == t.reported.verdict {
		since = t.reported.since // readers have seen no transition
	}
	st := v1alpha1.ProxyProbeStatus{
		InstanceID:         t.order.instanceID,
		Verdict:            t.tally.verdict,
		Reason:             string(r.Reason),
		Message:            clip(r.Message, maxMessage),
		LatencyMillis:      &latency,
		LastTransitionTime: apiTime(since),
		LastProbeTime:      apiTime(r.Start),
		ObservedGeneration: t.evidence.generation,
	}
	if t.exit.IsValid() {
		st.ExitIP = t.exit.String()
	}
	if st.Verdict == "" {
		st.Verdict = v1alpha1.VerdictUnknown
	}
	if t.marked {
		st.Reason, st.Message = string(probe.ReasonProbeTargetDown), "verdicts are held: "+t.trial
	}
	return st
}

// lastLatency is what a status says.
func (t *target) lastLatency() time.Duration {
	if t.evidence.result.Reason == "" {
		return t.reported.latency
	}
	return t.evidence.result.Latency
}

// apiTime is t as the API stores times, nil for none.
func apiTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.UTC().Truncate(time.Second)}
}

func clip(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}
