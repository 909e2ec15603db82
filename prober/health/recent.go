package health

import (
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

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
