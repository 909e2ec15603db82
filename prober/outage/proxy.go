package outage

import (
	"fmt"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// proxy is the state of one proxy.
type proxy struct {
	key Key
	Standing

	// The newest result of this process.
	resultAt     time.Time // zero before the first, and while the target explains it
	silent       bool      // it may be the prober's own fault
	failingSince time.Time // the first failure of the run, zero without one

	// The failures that are not attributed to the proxy.
	silentRun  bool      // one of them may be the prober's own fault
	lastFailed *target   // the target of the newest failure that it may have caused
	failedAt   time.Time // when that failure was
	mixed      bool      // an older such failure has another target

	needs                 *target   // whose direct check must work before the flip, nil for none
	held                  bool      // the flip waits for the end of the fleet hold
	pendingSince          time.Time // when the flip began to wait for a direct check; else zero
	suppressed, announced bool
}

// failuresMatter reports whether failures can change the verdict.
func (x *proxy) failuresMatter() bool { return x.Verdict != v1alpha1.VerdictUnhealthy }

// clear ends what is known about failures: none are left that could flip the verdict.
func (x *proxy) clear() {
	x.dropFailures()
	x.suppressed, x.announced, x.failingSince = false, false, time.Time{}
}

func (x *proxy) dropFailures() {
	x.lastFailed, x.mixed, x.silentRun, x.held, x.pendingSince = nil, false, false, false, time.Time{}
}

// Probed is the event that a probe ended, before its result counts. It returns the
// result, turned into an inconclusive one where it must not count.
func (m *Machine) Probed(p Probe, now time.Time) (probe.Result, []Effect) {
	x, r := m.proxies[p.Key], p.Result
	if x == nil || r.Reason == probe.ReasonCanceled {
		return r, nil
	}
	t := m.use(p, now)
	x.resultAt, x.silent = now, !r.Reason.Answered() || r.Far() && t.neverReached()
	switch r.Outcome {
	case probe.Success:
		x.clear()
		if t != nil && t.reached(p.Started) {
			m.emit(Effect{Do: WantCheck})
		}
	case probe.Failure:
		if x.failuresMatter() {
			r = m.failed(x, t, p, now)
		}
	}
	if !m.fleet.since.IsZero() {
		m.fleetFails(nil, now) // to notice when it ends
	}
	return r, m.take()
}

// failed notes a failure that can change the verdict.
func (m *Machine) failed(x *proxy, t *target, p Probe, now time.Time) probe.Result {
	m.fleetFails(x, now)       // to notice when the fleet hold begins
	m.attributeToProxy(x, now) // the failures before this one
	if !x.silent && x.silentRun && m.fleetHeld(now) {
		m.dropFailures(x) // the proxy answers now: only its answers count
		m.release(x)
	}
	if t != nil && p.Result.Far() {
		if why := m.attributeToTarget(x, t, p.Started, now); why != "" {
			return suppressed(p.Result, why)
		}
	}
	x.silentRun = x.silentRun || x.silent
	if x.failingSince.IsZero() {
		x.failingSince = now
	}
	return p.Result
}

// attributeToTarget notes a failure that the probe target may have caused. It returns
// why the failure is suppressed, "" when it counts.
func (m *Machine) attributeToTarget(x *proxy, t *target, started, now time.Time) (why string) {
	switch {
	case t.down:
		t.failed++
		why = t.suppressReason()
		m.suppress(x, why)
	case started.Before(t.back):
		why = t.name + " was down when the probe began"
	case !t.ignored:
		x.mixed = x.mixed || x.lastFailed != nil && x.lastFailed.name != t.name
		x.lastFailed, x.failedAt = t, now
	}
	if why != "" {
		if x.silent {
			x.resultAt = time.Time{} // the target explains it
		}
		return why
	}
	t.wanted = true
	m.emit(Effect{Do: WantCheck})
	return ""
}

// attributeToProxy attributes the failures so far to the proxy: no target may have
// caused them, or it worked in a direct check after the newest. A later outage does
// not take that back, otherwise a target that is down now and then would keep a dead
// proxy Healthy for ever. Silence is not attributed while the fleet is held, nor the
// silence that made the hold begin.
func (m *Machine) attributeToProxy(x *proxy, now time.Time) {
	if x.mixed || x.lastFailed != nil && !x.lastFailed.cleared(x.failedAt) || x.silentRun && m.fleetHeld(now) {
		return
	}
	x.lastFailed, x.silentRun = nil, false
	m.emit(Effect{Do: AttributeToProxy, Key: x.key})
}

// ThresholdReached is the event that the failures of a proxy reached the threshold.
// The verdict flips now, after a direct check, or not at all.
func (m *Machine) ThresholdReached(p Probe, now time.Time) []Effect {
	x := m.proxies[p.Key]
	if x == nil || !x.pendingSince.IsZero() {
		return nil
	}
	x.needs = nil
	if p.Result.Far() {
		x.needs = m.targets[p.Result.Target] // nil without direct checks
	}
	switch {
	case x.silentRun && m.fleetFails(x, now):
		m.hold(x)
	case !m.waitForCheck(x, now):
		m.markUnhealthy(x)
	}
	return m.take()
}

// waitForCheck has a flip wait for a direct check, and reports whether it has to.
func (m *Machine) waitForCheck(x *proxy, now time.Time) bool {
	t := x.needs
	if t == nil || m.targets[t.name] != t || t.ignored || !t.lastWorked.Before(x.failedAt) {
		return false
	}
	x.pendingSince = now
	t.pending = append(t.pending, x)
	m.emit(Effect{Do: WantCheck})
	return true
}

func (m *Machine) markUnhealthy(x *proxy) {
	x.clear()
	m.emit(Effect{Do: MarkUnhealthy, Key: x.key})
}

// flipLate flips a verdict without a probe that just ended.
func (m *Machine) flipLate(x *proxy) {
	m.markUnhealthy(x)
	m.emit(Effect{Do: WriteStatus, Key: x.key})
}

// suppress keeps the failures of a proxy from counting, and announces it in some
// statuses.
func (m *Machine) suppress(x *proxy, reason string) {
	e := Effect{Do: Suppress, Key: x.key, Text: reason}
	if !x.suppressed {
		x.suppressed = true
		if m.announced < MaxAnnounced {
			m.announced++
			x.announced, e.Announce = true, true
		}
	}
	m.emit(e)
}

// suppressed returns the inconclusive result of a probe whose failure must not count.
func suppressed(r probe.Result, why string) probe.Result {
	r.Outcome, r.Message = probe.Inconclusive, fmt.Sprintf("%s (%s); held: %s", r.Message, r.Reason, why)
	r.Reason = probe.ReasonProbeTargetDown
	return r
}

// releaseAll lets failures count again. Statuses that announced the opposite are
// corrected after the next probe. Flips that wait for a direct check, or for the end of
// a fleet hold, go on to wait.
func (m *Machine) releaseAll() {
	m.announced = 0
	for _, x := range m.proxies {
		if x.failuresMatter() && x.pendingSince.IsZero() && !x.held {
			m.release(x)
		}
		if x.announced {
			m.announced++
		}
	}
}

// release ends the suppression of a proxy's failures.
func (m *Machine) release(x *proxy) {
	if x.suppressed {
		m.emit(Effect{Do: Release, Key: x.key})
	}
	if x.announced {
		m.emit(Effect{Do: WriteStatus, Key: x.key})
	}
	x.suppressed, x.announced = false, false
}
