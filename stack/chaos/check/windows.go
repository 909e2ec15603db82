package check

import (
	"fmt"
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// window is a window of time.
type window struct{ from, to time.Duration }

func (s window) meets(o window) bool { return s.from <= o.to && o.from <= s.to }

// staleGrace is how long after an outage of those who bring verdicts to crawlers
// old ones may still be believed: the time to start, to list and to probe once.
const staleGrace = 30 * time.Second

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

// within reports whether a moment of s is in a window, or up to after behind it.
func within(windows []window, s window, after time.Duration) bool {
	return slices.ContainsFunc(windows, func(w window) bool { return s.meets(window{w.from, w.to + after}) })
}

// staleSince is the earliest moment whose state somebody may still believe at t
// who follows the API server: lag before t, or, where windows in which there was
// no following come before, lag before those.
func staleSince(windows []window, t, lag, after time.Duration) time.Duration {
	since := t - lag
	for again := true; again; {
		again = false
		for _, w := range windows {
			if w.from-lag < since && w.to+after >= since && w.from <= t {
				since, again = w.from-lag, true
			}
		}
	}
	return since
}

// catchUp is how long those who bring verdicts may take, after an outage, to bring
// those that have waited.
const catchUp = 10 * time.Second

// delayedSince is the earliest moment at which a verdict was known that is told at t:
// before it, there was nothing in its way for as long as it takes to catch up.
func delayedSince(outages []window, t time.Duration) time.Duration {
	since := t - observerLag
	for again := true; again; {
		again = false
		for _, w := range outages {
			if w.from < since && w.to+catchUp >= since {
				since, again = w.from, true
			}
		}
	}
	return since
}

// lateTimer is how late a timer must have been for the machine to count as starved:
// who is not run for that long breaks deadlines of seconds, and the system has no say
// in it. Nothing is excused without such a measurement within the very time that a
// promise is about. That tasks wait for a CPU, which on a busy machine some always
// do, excuses nothing.
const lateTimer = 500 * time.Millisecond

// starved says how the machine was starved during s, "" when it was not.
func (c *checker) starved(s window) string {
	for _, p := range c.Pressure {
		if p.Late >= lateTimer && s.meets(window{p.At - p.Over, p.At}) {
			return fmt.Sprintf("a timer was %s late at %s", p.Late.Round(time.Millisecond), p.At.Round(time.Millisecond))
		}
	}
	return ""
}

// ending is the last moment that counts: that at which the stage end begins.
func (c *checker) ending() time.Duration {
	if s, ok := c.begins[history.StageEnd]; ok {
		return s.from
	}
	return c.End
}
