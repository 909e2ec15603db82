package check

import (
	"fmt"
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

const (
	// observerLag is the most by which an observer may be behind or ahead of
	// discovery while nothing is broken.
	observerLag = 5 * time.Second
	// staleGrace is how long after an outage of the verdict path stale verdicts are
	// excused: the time to start, list and probe once.
	staleGrace = 30 * time.Second
	catchUp    = 10 * time.Second // how long delayed verdicts may take to arrive after an outage
	// clockStep is the most by which two readings of one wall time differ: responses
	// are rounded down to a millisecond.
	clockStep = 50 * time.Millisecond
	// lateTimer is the delay of a timer from which on the machine counts as starved:
	// processes that do not run for so long miss deadlines of seconds. Nothing is
	// excused without such a sample in the very window of a check. Tasks that wait for
	// a CPU excuse nothing: on a busy machine some always do.
	lateTimer = 500 * time.Millisecond
)

// window is a time span.
type window struct{ from, to time.Duration }

func (w window) meets(o window) bool { return w.from <= o.to && o.from <= w.to }

// verdictPath returns the outages of the processes through which verdicts reach
// discovery.
func (c *checker) verdictPath() []window {
	return c.down("apiserver", "etcd", "metacontroller", "prober")
}

// down returns when one of the subjects was killed or frozen.
func (c *checker) down(subjects ...string) []window {
	return c.outages(func(f history.Fault) bool {
		return (f.Family == history.Kill || f.Family == history.Freeze) && slices.Contains(subjects, f.Subject)
	})
}

func (c *checker) outages(which func(history.Fault) bool) []window {
	var out []window
	for _, f := range c.Faults {
		if which(f) {
			out = append(out, window{f.From, f.To})
		}
	}
	return out
}

// within reports whether w meets one of the windows, each extended by after.
func within(windows []window, w window, after time.Duration) bool {
	return slices.ContainsFunc(windows, func(o window) bool { return w.meets(window{o.from, o.to + after}) })
}

// staleSince returns the earliest moment whose state an observer may still use at t: lag
// before t, or before the outages that adjoin, each extended by after.
func staleSince(outages []window, t, lag, after time.Duration) time.Duration {
	since := t - lag
	for again := true; again; {
		again = false
		for _, w := range outages {
			if w.from-lag < since && w.to+after >= since {
				since, again = w.from-lag, true
			}
		}
	}
	return since
}

// starved is the excuse of a machine that was starved of CPU during w, "" without one.
func (c *checker) starved(w window) string {
	for _, p := range c.Pressure {
		if p.Late >= lateTimer && w.meets(window{p.At - p.Over, p.At}) {
			return fmt.Sprintf("a timer was %s late at %s", p.Late.Round(time.Millisecond), p.At.Round(time.Millisecond))
		}
	}
	return ""
}
