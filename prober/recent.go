package prober

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// remembered is how many probes of each target are kept to be shown. Those of
// 10,000 targets take some 5 MB.
const remembered = 5

// recent is the newest probes of one target. The zero value is empty.
type recent struct {
	entries []entry // as a ring once it is full
	next    uint8
}

// entry is one probe, small.
type entry struct {
	start   int64 // Unix nanoseconds
	reason  probe.Reason
	message string
	stages  [probe.StageCount]uint32 // microseconds
	status  uint16
	outcome probe.Outcome
	stage   probe.Stage
}

// add takes a probe in and returns its message as it is kept.
func (h *recent) add(r probe.Result) string {
	e := entry{
		start: r.Start.UnixNano(), reason: r.Reason, message: h.share(r.Message),
		status: uint16(r.HTTPStatus), outcome: r.Outcome, stage: r.Stage,
	}
	for s, d := range r.Stages {
		e.stages[s] = micros(d)
	}
	if h.entries == nil {
		h.entries = make([]entry, 0, remembered)
	}
	if len(h.entries) < remembered {
		h.entries = append(h.entries, e)
		return e.message
	}
	h.entries[h.next] = e
	h.next = (h.next + 1) % remembered
	return e.message
}

// share returns the message of the probe before where it is the same, as it is for a
// proxy that does what it did.
func (h *recent) share(message string) string {
	if len(h.entries) == 0 {
		return message
	}
	last := &h.entries[(int(h.next)+len(h.entries)-1)%len(h.entries)]
	if message == last.message {
		return last.message
	}
	return message
}

// newestFirst is a copy.
func (h *recent) newestFirst() []entry {
	n := len(h.entries)
	out := make([]entry, n)
	for i := range out {
		out[i] = h.entries[(int(h.next)+n-1-i)%n]
	}
	return out
}

// took is the time of all stages together.
func (e *entry) took() time.Duration {
	var sum time.Duration
	for _, s := range e.stages {
		sum += time.Duration(s) * time.Microsecond
	}
	return sum
}

func micros(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0), 1<<32-1))
}
