package outage

import (
	"log/slog"
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// StartChecks returns the direct checks that are due, and the longest time until it
// must be called again.
func (m *Machine) StartChecks(now time.Time) (checks []StartCheck, wait time.Duration) {
	wait = time.Minute
	for _, t := range m.targets {
		due, needed := t.checkDue()
		switch left := due.Sub(now); {
		case !needed:
		case left > 0:
			wait = min(wait, left)
		default:
			t.checking, t.wanted, t.begun, t.contradicted = true, false, now, t.reachable()
			checks = append(checks, StartCheck{t.check, t})
		}
	}
	return checks, wait
}

// CheckDone is the event that a direct check ended. A check that could not be made
// shows nothing, and no flip waits for another one.
func (m *Machine) CheckDone(c StartCheck, r probe.Result, now time.Time) []Effect {
	t := c.target
	t.checking = false
	if r.Outcome != probe.Inconclusive {
		t.weigh(r.Outcome == probe.Success, now)
	}
	if r.Reached() {
		t.ignored = t.ignored && t.proven // else it was ignored because none had
		t.proven = true
	}
	if r.Outcome == probe.Success {
		t.lastWorked, t.ignored = t.begun, false
	} else {
		t.message = r.Message
	}
	decided := t.takePending()
	switch {
	case m.targets[t.name] != t: // evicted meanwhile
	case r.Outcome == probe.Failure && (!t.proven || t.contradictedBy >= contradictedChecks):
		m.ignoreChecks(t)
		m.resolvePending(decided, now)
	case r.Outcome == probe.Failure && !t.ignored:
		m.targetDown(t, decided, now)
	case r.Outcome == probe.Success && t.down:
		m.targetBack(t, now)
	default:
		m.resolvePending(decided, now)
	}
	m.emit(Effect{Do: WantCheck})
	return m.take()
}

// weigh compares the probes through proxies with a check that ended. Counts go on over
// checks that fail as expected: a check may take longer than the time between two, and
// a small fleet makes few probes.
func (t *target) weigh(works bool, now time.Time) {
	switch {
	case t.contradicted && !works:
		t.contradictedBy++
	case works || !t.down || now.Sub(t.countedSince) >= max(countWindow, (contradictions+1)*t.check.Interval.Duration):
		t.contradictedBy = 0
	default:
		return
	}
	t.worked, t.failed, t.countedSince = 0, 0, now
}

// takePending removes and returns the pending flips that the ended check decides:
// those of failures before it began.
func (t *target) takePending() (decided []*proxy) {
	t.pending = slices.DeleteFunc(t.pending, func(x *proxy) bool {
		if !x.pendingSince.IsZero() && !x.pendingSince.After(t.begun) {
			decided = append(decided, x)
		}
		return !x.pendingSince.After(t.begun) // zero included
	})
	return decided
}

// resolvePending flips the verdicts whose target did not cause the failures.
func (m *Machine) resolvePending(decided []*proxy, now time.Time) {
	for _, x := range decided {
		switch {
		case x.pendingSince.IsZero(): // listed twice
		case x.silentRun && m.fleetFails(x, now):
			m.hold(x)
		case x.pendingSince.IsZero(): // counting the fleet ended a hold, which drops failures
		default:
			m.flipLate(x)
		}
	}
}

// targetDown notes that the direct check fails as well. Failures since it last worked
// do not count.
func (m *Machine) targetDown(t *target, decided []*proxy, now time.Time) {
	if !t.down {
		t.down, t.downSince = true, now
		m.log(slog.LevelWarn, "the probe target is down: its direct check, which reached it before, fails; verdicts are held",
			slog.String("target", t.name), slog.String("message", t.message))
		m.dropFailuresWith(t, now)
	}
	for _, x := range decided {
		m.dropFailures(x)
		m.suppress(x, t.suppressReason())
		m.emit(Effect{Do: WriteStatus, Key: x.key})
	}
}

// dropFailuresWith drops all failures that a target may have caused since it last
// worked, and the flips that wait for it.
func (m *Machine) dropFailuresWith(t *target, now time.Time) {
	for _, x := range m.proxies {
		if x.lastFailed != nil {
			m.attributeToProxy(x, now)
		}
		if x.mixed || x.lastFailed != nil && x.lastFailed.name == t.name {
			m.dropFailures(x)
		}
	}
	for _, x := range t.pending {
		x.pendingSince = time.Time{}
	}
	t.pending = nil
}

func (m *Machine) dropFailures(x *proxy) {
	x.dropFailures()
	m.emit(Effect{Do: DropFailures, Key: x.key})
}

func (m *Machine) targetBack(t *target, now time.Time) {
	t.down, t.back = false, t.begun
	m.log(slog.LevelInfo, "the probe target is back; failures count again",
		slog.String("target", t.name), slog.Duration("downFor", now.Sub(t.downSince)))
	m.releaseAll()
}

// ignoreChecks ends an outage that only direct checks see, or that no direct check can
// show, since none has worked yet.
func (m *Machine) ignoreChecks(t *target) {
	if t.ignored {
		return
	}
	why := "none has worked yet"
	if t.proven {
		why = "proxies reach the target"
	}
	down := t.down
	t.down, t.ignored = false, true
	m.log(slog.LevelWarn, "direct checks of the probe target are ignored until one works: "+why,
		slog.String("target", t.name), slog.String("message", t.message),
		slog.String("hint", "allow the prober to reach it, or set --direct-check=false"))
	if down {
		m.releaseAll()
	}
}
