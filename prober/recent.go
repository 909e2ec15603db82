package prober

import (
	"net/netip"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// remembered is how many probes of each target are kept to be shown. Those of
// 10,000 targets take some 8 MB.
const remembered = 5

// recent is the newest probes of one target. The zero value is empty.
type recent struct {
	entries []entry // as a ring once it is full
	next    int
}

// entry is one probe, small.
type entry struct {
	start   int64 // Unix nanoseconds
	exit    netip.Addr
	reason  probe.Reason
	message string
	target  string
	stages  [probe.StageCount]uint32 // microseconds
	latency uint32                   // microseconds
	status  uint16
	outcome probe.Outcome
	stage   probe.Stage
}

func (h *recent) add(r probe.Result) {
	e := entry{
		start: r.Start.UnixNano(), exit: r.Exit, reason: r.Reason, message: r.Message, target: r.Target,
		latency: micros(r.Latency), status: uint16(r.HTTPStatus), outcome: r.Outcome, stage: r.Stage,
	}
	for s, d := range r.Stages {
		e.stages[s] = micros(d)
	}
	h.share(&e)
	if h.entries == nil {
		h.entries = make([]entry, 0, remembered)
	}
	if len(h.entries) < remembered {
		h.entries = append(h.entries, e)
		return
	}
	h.entries[h.next] = e
	h.next = (h.next + 1) % remembered
}

// share uses the strings of the entry before where they are the same, as they are
// for a proxy that does what it did.
func (h *recent) share(e *entry) {
	if len(h.entries) == 0 {
		return
	}
	last := &h.entries[(h.next+len(h.entries)-1)%len(h.entries)]
	if e.message == last.message {
		e.message = last.message
	}
	if e.target == last.target {
		e.target = last.target
	}
}

// newestFirst is a copy.
func (h *recent) newestFirst() []entry {
	n := len(h.entries)
	out := make([]entry, n)
	for i := range out {
		out[i] = h.entries[(h.next+n-1-i)%n]
	}
	return out
}

func micros(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0), 1<<32-1))
}
