package outage

import (
	"log/slog"
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

const (
	checkInterval     = 5 * time.Second // the least time between two direct checks of a target
	flipCheckInterval = time.Second     // the same when a flip waits for the check
	TargetIdle        = time.Hour       // how long a target is kept that no failure refers to
	// contradictions is how many probes through proxies must work, and more than fail,
	// to contradict a direct check that fails: a firewall may block the prober alone.
	contradictions = 3
	// contradictedChecks is how many consecutive direct checks must be contradicted
	// before they are ignored. One may be a target that works for a moment during an
	// outage.
	contradictedChecks = 2
	countWindow        = time.Minute // how long probes through proxies are counted before the counts start again from zero
)

// target is a probe target that probes failed with.
type target struct {
	name  string               // host:port
	check v1alpha1.HealthCheck // of the newest failure: what a direct check fetches
	used  time.Time            // when the newest failure was

	wanted     bool      // a check should be made
	checking   bool      // a check is under way
	begun      time.Time // when the newest check began
	lastWorked time.Time // when the newest check began that worked
	message    string    // of the newest check that failed

	down      bool
	downSince time.Time
	back      time.Time // when the check began that ended the last outage
	ignored   bool      // direct checks are contradicted by probes, until one works
	pending   []*proxy  // flips that wait for a check

	// Probes through proxies while the target is down.
	countedSince   time.Time
	worked, failed int
	contradicted   bool // the check under way, if it fails
	contradictedBy int  // consecutive checks that failed and were contradicted
}

// StartCheck is a direct check to make: fetch HealthCheck.ProbeURL without a proxy,
// then report the result to CheckDone.
type StartCheck struct {
	HealthCheck v1alpha1.HealthCheck
	target      *target
}

// TargetState is what the machine knows about a probe target that probes failed with.
type TargetState struct {
	Down          bool
	ChecksIgnored bool
	Pending       int // flips that wait for a direct check
}

// Targets returns the probe targets by host:port.
func (m *Machine) Targets() map[string]TargetState {
	out := make(map[string]TargetState, len(m.targets))
	for name, t := range m.targets {
		out[name] = TargetState{t.down, t.ignored, len(t.pending)}
	}
	return out
}

// target returns the target of a failed probe, and notes how to check it.
func (m *Machine) target(p Probe, now time.Time) *target {
	t := m.targets[p.Result.Target]
	if t == nil {
		m.sweep(now)
		t = &target{name: p.Result.Target}
		m.targets[t.name] = t
	}
	t.used, t.check = now, *p.HealthCheck
	t.check.ProbeURL = p.URL
	return t
}

// sweep evicts idle targets, such as those that no ProxyProbe names any more.
func (m *Machine) sweep(now time.Time) {
	for _, t := range m.targets {
		if !t.checking && now.Sub(t.used) > TargetIdle {
			m.evict(t)
		}
	}
}

func (m *Machine) evict(t *target) {
	if t.down {
		m.log(slog.LevelInfo, "a probe target that was down is no longer checked", slog.String("target", t.name))
	}
	delete(m.targets, t.name)
}

// suppressReason is why failures with a target that is down do not count.
func (t *target) suppressReason() string {
	return "the direct check of " + t.name + " fails too: " + t.message
}

// reached notes that a probe which started then reached the target. It reports
// whether a check is due for it.
func (t *target) reached(started time.Time) bool {
	if !t.down || !started.After(t.countedSince) {
		return false
	}
	t.worked++
	return t.reachable()
}

// reachable reports whether enough probes reached a target that is down. Either it is
// back, or the direct check is wrong: the next check decides.
func (t *target) reachable() bool {
	return t.down && t.worked >= contradictions && t.worked > t.failed
}

// checkDue returns when the next check begins, false when none is needed.
func (t *target) checkDue() (time.Time, bool) {
	switch {
	case t.checking:
		return time.Time{}, false
	case len(t.pending) > 0 || t.reachable():
		return t.begun.Add(flipCheckInterval), true
	case t.down || t.ignored || t.wanted:
		return t.begun.Add(checkInterval), true
	}
	return time.Time{}, false
}

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
	if r.Outcome == probe.Success {
		t.lastWorked, t.ignored = t.begun, false
	} else {
		t.message = r.Message
	}
	decided := t.takePending()
	switch {
	case m.targets[t.name] != t: // evicted meanwhile
	case r.Outcome == probe.Failure && t.contradictedBy >= contradictedChecks:
		m.ignoreChecks(t, now)
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
	case works || !t.down || now.Sub(t.countedSince) >= countWindow:
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
		case m.fleetFails(now):
			x.pendingSince = time.Time{}
			m.suppress(x, m.fleet.text)
		case x.pendingSince.IsZero(): // counting the fleet ended a hold, which drops failures
		default:
			m.markUnhealthy(x)
			m.emit(Effect{Do: WriteStatus, Key: x.key})
		}
	}
}

// targetDown notes that the direct check fails as well. Failures since it last worked
// do not count.
func (m *Machine) targetDown(t *target, decided []*proxy, now time.Time) {
	if !t.down {
		t.down, t.downSince = true, now
		m.log(slog.LevelWarn, "the probe target is down: a direct check fails as probes do; verdicts are held",
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

// ignoreChecks ends an outage that only direct checks see.
func (m *Machine) ignoreChecks(t *target, now time.Time) {
	t.down, t.ignored = false, true
	m.log(slog.LevelWarn, "direct checks of the probe target are ignored until one works: proxies reach the target",
		slog.String("target", t.name), slog.String("message", t.message), slog.Duration("downFor", now.Sub(t.downSince)),
		slog.String("hint", "allow the prober to reach it, or set --direct-check=false"))
	m.releaseAll()
}
