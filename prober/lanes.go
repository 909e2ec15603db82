package prober

import "time"

// slowAfter is how long a probe may take before its target counts as slow.
const slowAfter = time.Second

// lanes decide who gets a free worker: whoever has been due for longest. Targets
// whose last probe was slow wait in a lane of their own, which never has all
// workers. Proxies that accept connections and say nothing would else hold every
// worker for their timeouts, and nobody would notice when others die.
type lanes struct {
	workers        int
	busy, busySlow int // workers that probe, and those that probe slow targets
	quick, slow    schedule
}

// slowMost is how many workers may probe slow targets at once: all but a
// quarter, since quick probes need few.
func (l *lanes) slowMost() int {
	if l.workers == 1 {
		return 1
	}
	return l.workers - max(1, l.workers/4)
}

func (l *lanes) of(t *target) *schedule {
	if t.slow {
		return &l.slow
	}
	return &l.quick
}

// push adds a target by its due time, or moves it there.
func (l *lanes) push(t *target) { l.of(t).push(t) }

// remove takes t out if it is in.
func (l *lanes) remove(t *target) { l.of(t).remove(t) }

// waiting is how many targets are in.
func (l *lanes) waiting() int { return len(l.quick.heap) + len(l.slow.heap) }

// next takes out a target that is due and gives it a worker, nil when none is
// due or may have one.
func (l *lanes) next(now time.Time) *target {
	if l.busy == l.workers {
		return nil
	}
	lane := &l.quick
	if l.busySlow < l.slowMost() && l.slow.before(&l.quick) {
		lane = &l.slow
	}
	t := lane.popDue(now)
	if t == nil {
		return nil
	}
	l.busy++
	if t.slow {
		l.busySlow++
	}
	return t
}

// wait is how long next has nothing, unless a worker gets free before; at most
// the given time.
func (l *lanes) wait(now time.Time, most time.Duration) time.Duration {
	if l.busy == l.workers {
		return most
	}
	if l.busySlow < l.slowMost() {
		most = l.slow.wait(now, most)
	}
	return l.quick.wait(now, most)
}

// done gives a worker back that had a target of that kind.
func (l *lanes) done(slow bool) {
	l.busy--
	if slow {
		l.busySlow--
	}
}
