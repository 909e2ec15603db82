// Package health turns the probes of one proxy into a verdict, and decides when
// ProxyProbe.status must be written. It is pure: the time is passed in.
package health

import (
	"net/netip"
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// startupGrace is the least time before a new instance is called Unhealthy: its proxy
// may still be starting.
const startupGrace = 10 * time.Second

// Proxy is the health of the instance behind one ProxyProbe. A new instance starts
// with the zero value.
type Proxy struct {
	Counters
	Recent         Recent
	Exit           netip.Addr // the exit address that counts, see Observe
	SuppressReason string     // why failures do not count now, "" when they do
	EverHealthy    bool       // the instance was Healthy at least once

	announced    bool         // the status is to show that flips are suppressed
	lastWritten  Written      // what ProxyProbe.status contains
	lastProbe    LastProbe    // the newest that agrees with the verdict
	pending      *LastProbe   // the newest failure that reached the threshold
	inconclusive probe.Reason // of the newest probe, "" when it was conclusive
	firstProbe   time.Time    // start of the first probe
	newestExit   netip.Addr   // of the newest success

	sameMessage  run       // lastProbes with equal reason and message
	sameReason   run       // lastProbes with equal reason: messages may differ each time
	changedAt    time.Time // when lastProbe last showed another reason or message
	reasonAt     time.Time // when a status was last written for its reason alone
	reasonWrites int32     // such writes since the reason was last steady
}

// LastProbe is what a status shows of a probe. Whole results of a large fleet would
// take megabytes.
type LastProbe struct {
	Reason     probe.Reason
	Message    string
	Latency    time.Duration
	Start      time.Time
	Generation int64 // of the ProxyProbe that the probe was made for
}

// LastProbeOf returns what a status shows of a result.
func LastProbeOf(r probe.Result, generation int64) LastProbe {
	return LastProbe{Reason: r.Reason, Message: r.Message, Latency: r.Latency, Start: r.Start, Generation: generation}
}

// LastProbe returns the newest probe that agrees with the verdict.
func (p *Proxy) LastProbe() LastProbe { return p.lastProbe }

// Started notes that a probe starts.
func (p *Proxy) Started(now time.Time) {
	if p.firstProbe.IsZero() {
		p.firstProbe = now
	}
}

// Observe keeps what a probe shows beside its outcome, and returns the copy of its
// message that is kept anyway.
func (p *Proxy) Observe(r probe.Result) string {
	message := p.Recent.add(r)
	if r.Outcome != probe.Success {
		return message
	}
	// The first exit counts at once, another one only when two successes in a row show
	// it: a provider that rotates exits must not cause a write with each probe.
	if r.Exit == p.newestExit || !p.Exit.IsValid() || !r.Exit.IsValid() {
		p.Exit = r.Exit
	}
	p.newestExit = r.Exit
	return message
}

// Count counts a success or a failure. It reports whether the failures reach the
// threshold, so that the verdict is about to flip: MarkUnhealthy flips it.
func (p *Proxy) Count(success bool, last LastProbe, hc *v1alpha1.HealthCheck, now time.Time) (pending bool) {
	p.inconclusive = ""
	p.count(success)
	if success {
		p.recovered(hc, now)
		p.Release()
	}
	if agrees(p.Verdict, success) {
		p.show(last, now)
	}
	p.EverHealthy = p.EverHealthy || p.Verdict == v1alpha1.VerdictHealthy
	if success || !p.failed(hc) || p.Verdict == v1alpha1.VerdictUnhealthy || p.starting(hc, now) {
		return false
	}
	p.pending = &last
	return true
}

// CountInconclusive counts a probe that shows nothing about the proxy. It reports
// whether its reason is new, and whether the verdict turned to Unknown by it.
func (p *Proxy) CountInconclusive(last LastProbe, limit int32, now time.Time) (newReason, turned bool) {
	newReason = p.inconclusive != last.Reason
	p.inconclusive = last.Reason
	if last.Reason == probe.ReasonCanceled {
		return false, false
	}
	before := p.Verdict
	p.countInconclusive(limit, now)
	turned = p.Verdict == v1alpha1.VerdictUnknown && before != v1alpha1.VerdictUnknown
	if p.Verdict == v1alpha1.VerdictUnknown {
		p.show(last, now)
	}
	if turned {
		p.Release()
	}
	return newReason, turned
}

// starting reports whether an instance without a verdict is too young to be called
// Unhealthy.
func (p *Proxy) starting(hc *v1alpha1.HealthCheck, now time.Time) bool {
	// Half of the intervals, since the second probe may come half an interval early.
	grace := min(startupGrace, time.Duration(hc.FailureThreshold-1)*hc.Interval.Duration/2)
	return p.Verdict == "" && now.Sub(p.firstProbe) < grace
}

// AttributeToProxy notes that no outage explains the failures so far.
func (p *Proxy) AttributeToProxy() { p.ProxyFailures = p.Failures }

// DropFailures drops the failures that an outage may explain.
func (p *Proxy) DropFailures() { p.Failures, p.pending = p.ProxyFailures, nil }

// Suppress notes why failures do not count. With announce the status shows it.
func (p *Proxy) Suppress(reason string, announce bool) {
	p.SuppressReason = reason
	p.announced = p.announced || announce
}

// Release lets failures count again.
func (p *Proxy) Release() { p.pending, p.announced, p.SuppressReason = nil, false, "" }

// MarkUnhealthy flips the verdict after Count reported that it is pending.
func (p *Proxy) MarkUnhealthy(now time.Time) {
	if p.pending == nil {
		return
	}
	p.flip(v1alpha1.VerdictUnhealthy, now)
	p.show(*p.pending, now)
	p.confirm() // by a whole run of failures
	p.Release()
}

// RecentProbes is how many probes of each proxy are kept for display. Those of 10,000
// proxies take some 5 MB.
const RecentProbes = 5

// Recent holds the newest probes of one proxy, the newest first.
type Recent []RecentProbe

// RecentProbe is one probe in compact form.
type RecentProbe struct {
	StartNanos  int64 // Unix time
	Reason      probe.Reason
	Message     string
	StageMicros [probe.StageCount]uint32
	HTTPStatus  uint16
	Outcome     probe.Outcome
	Stage       probe.Stage
}

// add keeps a probe and returns the copy of its message that is kept.
func (h *Recent) add(r probe.Result) string {
	p := RecentProbe{
		StartNanos: r.Start.UnixNano(), Reason: r.Reason, Message: h.intern(r.Message),
		HTTPStatus: uint16(r.HTTPStatus), Outcome: r.Outcome, Stage: r.Stage,
	}
	for s, d := range r.Stages {
		p.StageMicros[s] = uint32(min(max(d.Microseconds(), 0), 1<<32-1))
	}
	if *h == nil {
		*h = make(Recent, 0, RecentProbes)
	}
	*h = slices.Insert((*h)[:min(len(*h), RecentProbes-1)], 0, p)
	return p.Message
}

// intern returns the previous probe's copy of an equal message: consecutive probes of
// a proxy mostly end alike.
func (h Recent) intern(message string) string {
	if len(h) > 0 && h[0].Message == message {
		return h[0].Message
	}
	return message
}

// Latency is the time of all stages together.
func (p *RecentProbe) Latency() time.Duration {
	var sum time.Duration
	for _, s := range p.StageMicros {
		sum += time.Duration(s) * time.Microsecond
	}
	return sum
}
