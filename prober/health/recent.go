package health

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// RecentProbes is how many probes of each proxy are kept for display. Those of 10,000
// proxies take some 5 MB.
const RecentProbes = 5

// Recent holds the newest probes of one proxy. The zero value is empty.
type Recent struct {
	probes []RecentProbe // a ring once it is full
	next   uint8
}

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
	if h.probes == nil {
		h.probes = make([]RecentProbe, 0, RecentProbes)
	}
	if len(h.probes) < RecentProbes {
		h.probes = append(h.probes, p)
		return p.Message
	}
	h.probes[h.next] = p
	h.next = (h.next + 1) % RecentProbes
	return p.Message
}

// intern returns the previous probe's copy of an equal message: consecutive probes of
// a proxy mostly end alike.
func (h *Recent) intern(message string) string {
	if len(h.probes) == 0 {
		return message
	}
	last := &h.probes[(int(h.next)+len(h.probes)-1)%len(h.probes)]
	if message == last.Message {
		return last.Message
	}
	return message
}

// NewestFirst returns a copy.
func (h *Recent) NewestFirst() []RecentProbe {
	n := len(h.probes)
	out := make([]RecentProbe, n)
	for i := range out {
		out[i] = h.probes[(int(h.next)+n-1-i)%n]
	}
	return out
}

// Latency is the time of all stages together.
func (p *RecentProbe) Latency() time.Duration {
	var sum time.Duration
	for _, s := range p.StageMicros {
		sum += time.Duration(s) * time.Microsecond
	}
	return sum
}
