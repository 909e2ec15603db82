package health

import "time"

// A status shows the reason and the message of today: a change for good is written once.
const (
	// reasonRun is how many probes in a row must end with another reason or message than
	// the status shows. It doubles with each such write after the third, up to
	// maxReasonRun, until the reason stays the same for reasonMemory.
	reasonRun    int32 = 2
	maxReasonRun int32 = 32
	reasonMemory       = 10 * time.Minute
)

// run counts consecutive probes that end alike: now, and before the last change.
type run struct{ now, before int32 }

func (r *run) count(alike bool) {
	if !alike {
		r.before, r.now = r.now, 0
	}
	r.now++
}

// show notes the newest probe that agrees with the verdict.
func (p *Proxy) show(last LastProbe, now time.Time) {
	sameReason := last.Reason == p.lastProbe.Reason
	alike := sameReason && last.Message == p.lastProbe.Message
	if !alike {
		if now.Sub(p.changedAt) >= reasonMemory {
			p.reasonWrites = 0
		}
		p.changedAt = now
	}
	p.sameReason.count(sameReason)
	p.sameMessage.count(alike)
	p.lastProbe = last
}

// confirm notes that lastProbe stands for a whole run.
func (p *Proxy) confirm() { p.sameReason.now, p.sameMessage.now = reasonRun, reasonRun }

// runOf returns the run of what the status does not show: the reason, or only the message.
func (p *Proxy) runOf() run {
	if string(p.lastProbe.Reason) != p.lastWritten.reason {
		return p.sameReason
	}
	return p.sameMessage
}

// otherReason reports whether the newest probe that agrees with the verdict has another
// reason or message than the status shows.
func (p *Proxy) otherReason() bool {
	w, last := &p.lastWritten, &p.lastProbe
	if p.Verdict != w.Verdict || p.announced || w.announced || last.Reason == "" || w.reason == "" {
		return false
	}
	return string(last.Reason) != w.reason || w.message != "" && clip(last.Message, maxMessage) != w.message
}

// reasonRun returns how many probes must agree before a changed reason is written.
func (p *Proxy) reasonRun() int32 {
	return min(reasonRun<<max(min(p.reasonWrites-2, 8), 0), maxReasonRun)
}

// Unconfirmed reports whether the newest probe is the first one to show another reason
// than before, so that one more probe is to confirm it soon.
func (p *Proxy) Unconfirmed() bool {
	r := p.runOf()
	return p.otherReason() && r.now < reasonRun && r.before >= reasonRun
}
