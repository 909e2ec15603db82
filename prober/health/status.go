package health

import (
	"net/netip"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// Bounds on writes that report drift (of latency, exit or reason) without a flip: they
// keep jitter from causing writes for ever.
const (
	minLatencyChange = 20 * time.Millisecond
	minDriftInterval = time.Minute
)

// maxMessage is the bound of status.message in the CRD, in characters.
const maxMessage = 1024

// WriteReason is why a status is written.
type WriteReason string

// The reasons for a write, and none.
const (
	NoWrite      WriteReason = ""
	FirstVerdict WriteReason = "first_verdict"
	Flip         WriteReason = "flip"
	LatencyDrift WriteReason = "latency"
	ExitChange   WriteReason = "exit"
	ReasonChange WriteReason = "reason"
	Announcement WriteReason = "held"
)

// Written is what ProxyProbe.status contains about the instance. It changes only
// after a write succeeded, so that a lost write is retried.
type Written struct {
	Verdict   v1alpha1.Verdict
	since     time.Time
	latency   time.Duration
	exit      netip.Addr
	reason    string
	message   string      // "" for not known
	announced bool        // that flips are suppressed
	at        time.Time   // of the write
	why       WriteReason // of the write
	version   string      // resource version of the object, "" for not known
}

// writtenIn reads what a ProxyProbe's status contains about an instance, the zero
// value for nothing.
func writtenIn(pp *v1alpha1.ProxyProbe, instanceID string, now time.Time) Written {
	st, w := &pp.Status, Written{version: pp.ResourceVersion}
	if st.InstanceID != instanceID {
		return w
	}
	w.Verdict, w.reason, w.message = st.Verdict, st.Reason, st.Message
	if !Decided(st.Verdict) {
		return w
	}
	w.announced = st.Reason == string(probe.ReasonProbeTargetDown)
	w.exit, _ = netip.ParseAddr(st.ExitIP) // the prober writes addresses only; anything else counts as none
	if st.LastTransitionTime != nil {
		w.since = st.LastTransitionTime.Time
	}
	if st.LatencyMillis != nil { // no probe takes a day, and more could overflow
		const day = 24 * 60 * 60 * 1000
		w.latency = time.Duration(min(max(*st.LatencyMillis, 0), day)) * time.Millisecond
	}
	// Converted to this process's clock: neither a clock that ran ahead nor one that is
	// set back from here on may hold back writes.
	if st.LastProbeTime != nil {
		w.at = now.Add(-max(0, now.Sub(st.LastProbeTime.Time)))
	}
	return w
}

// before reports whether w is older than other for certain.
func (w Written) before(other Written) bool {
	order, err := resourceversion.CompareResourceVersion(w.version, other.version)
	return err == nil && order < 0
}

// follow takes over a newer status with the same verdict: this process' own write that is
// not noted yet, or another one's.
func (w *Written) follow(read Written) {
	if read.message == "" && read.reason == w.reason {
		read.message = w.message // the watch drops those of plain successes
	}
	if !Decided(read.Verdict) {
		w.reason, w.message, w.version = read.reason, read.message, read.version
		return
	}
	if read.at.Before(w.at) {
		read.at = w.at // of the write, which came after the probe
	}
	*w = read
}

// LastWritten returns what the status contains.
func (p *Proxy) LastWritten() Written { return p.lastWritten }

// WrittenOutage returns the message of a status that names an outage, "" for others.
func (p *Proxy) WrittenOutage() string {
	if p.lastWritten.reason == string(probe.ReasonProbeTargetDown) {
		return p.lastWritten.message
	}
	return ""
}

// Slow reports whether the written latency is at least d.
func (p *Proxy) Slow(d time.Duration) bool { return p.lastWritten.latency >= d }

// Seed takes over the verdict that another process wrote about the instance.
// Counters stay at zero, so that a flip needs a full run. It reports whether there
// was such a verdict.
func (p *Proxy) Seed(pp *v1alpha1.ProxyProbe, instanceID string, now time.Time) bool {
	p.lastWritten = writtenIn(pp, instanceID, now)
	p.Rollback()
	return Decided(p.lastWritten.Verdict)
}

// Rollback drops what is not written: the verdict in the API server counts. Without
// one the instance starts without a verdict.
func (p *Proxy) Rollback() {
	p.Counters, p.lastProbe, p.inconclusive = Counters{}, LastProbe{}, ""
	p.confirm()
	p.Release()
	if w := p.lastWritten; Decided(w.Verdict) {
		p.Counters = Counters{Verdict: w.Verdict, Since: w.since}
		p.EverHealthy, p.Exit, p.newestExit = true, w.exit, w.exit
	}
}

// ReconcileStatus compares a changed status with what this process wrote. Mostly it
// is the same. If not, another process wrote it, which led before or leads now: its
// verdict replaces ours. A status without a verdict on this instance is written anew.
// It reports whether the verdict was replaced.
func (p *Proxy) ReconcileStatus(pp *v1alpha1.ProxyProbe, instanceID string, now time.Time) (replaced bool) {
	w := writtenIn(pp, instanceID, now)
	if w.before(p.lastWritten) {
		return false // stale: from before the last write
	}
	switch w.Verdict {
	case p.lastWritten.Verdict:
		if p.lastProbe.Reason == "" && w.exit != p.lastWritten.exit { // another process saw it
			p.Exit, p.newestExit = w.exit, w.exit
		}
		p.lastWritten.follow(w)
	case p.Verdict, "":
		p.lastWritten = w
	default:
		p.Seed(pp, instanceID, now)
		return true
	}
	return false
}

// WriteReason returns why the status must be written now.
func (p *Proxy) WriteReason(now time.Time) WriteReason {
	w, latency := &p.lastWritten, p.lastProbe.Latency // 0 before a probe agrees with the verdict
	changed := p.Verdict != "" && p.Verdict != w.Verdict
	mayDrift := p.Verdict == v1alpha1.VerdictHealthy && now.Sub(w.at) >= minDriftInterval
	switch {
	case changed && !Decided(w.Verdict):
		return FirstVerdict
	case changed:
		return Flip
	case mayDrift && latency != 0 && (latency-w.latency).Abs() > max(minLatencyChange, w.latency/2):
		return LatencyDrift
	case p.announced != w.announced && (p.announced || p.lastProbe.Reason != ""):
		return Announcement
	case mayDrift && p.lastProbe.Reason != "" && p.Exit != w.exit:
		return ExitChange
	case p.otherReason() && p.runOf().now >= p.reasonRun() && now.Sub(p.reasonAt) >= minDriftInterval:
		return ReasonChange
	}
	return NoWrite
}

// Status returns the status to write.
func (p *Proxy) Status(instanceID string) v1alpha1.ProxyProbeStatus {
	last := p.lastProbe
	if last.Reason == "" { // no probe of this process agrees with the verdict yet
		last.Start, last.Latency = p.lastWritten.at, p.lastWritten.latency
	}
	since := p.Since
	if p.Verdict == p.lastWritten.Verdict {
		since = p.lastWritten.since // readers have seen no transition
	}
	st := v1alpha1.ProxyProbeStatus{
		InstanceID:         instanceID,
		Verdict:            p.Verdict,
		Reason:             string(last.Reason),
		Message:            clip(last.Message, maxMessage),
		LatencyMillis:      new(last.Latency.Milliseconds()),
		LastTransitionTime: apiTime(since),
		LastProbeTime:      apiTime(last.Start),
		ObservedGeneration: last.Generation,
	}
	if p.Exit.IsValid() {
		st.ExitIP = p.Exit.String()
	}
	if st.Verdict == "" {
		st.Verdict = v1alpha1.VerdictUnknown
	}
	if p.announced {
		st.Reason, st.Message = string(probe.ReasonProbeTargetDown), "verdicts are held: "+p.SuppressReason
	}
	return st
}

// Written returns what LastWritten becomes when a status of now is written for a reason.
func (p *Proxy) Written(why WriteReason) Written {
	latency := p.lastProbe.Latency
	if p.lastProbe.Reason == "" {
		latency = p.lastWritten.latency
	}
	return Written{latency: latency, exit: p.Exit, announced: p.announced, why: why}
}

// Wrote notes that a status is stored, in this version of the object. A result that
// arrives after a newer status is ignored.
func (p *Proxy) Wrote(st *v1alpha1.ProxyProbeStatus, w Written, version string, now time.Time) {
	w.Verdict, w.reason, w.message, w.at, w.version = st.Verdict, st.Reason, st.Message, now, version
	if w.before(p.lastWritten) {
		return
	}
	if st.LastTransitionTime != nil {
		w.since = st.LastTransitionTime.Time
	}
	p.lastWritten = w
	if w.why == ReasonChange {
		p.reasonAt, p.reasonWrites = now, p.reasonWrites+1
	}
}

// apiTime returns t as the API stores times, nil for none.
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
