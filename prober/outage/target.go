package outage

import (
	"log/slog"
	"net"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

const (
	checkInterval     = 5 * time.Second // the least time between two direct checks of a target
	flipCheckInterval = time.Second     // the same when a flip waits for the check
	TargetIdle        = time.Hour       // how long a target is kept that no probe uses
	// baselineInterval is how often a target is checked while probes work. Otherwise no
	// direct check would have worked before the first outage.
	baselineInterval = 5 * time.Minute
	baselinePause    = 100 * time.Millisecond // between two such checks, of whatever targets
	// contradictions is how many probes through proxies must work, and more than fail,
	// to contradict a direct check that fails: a firewall may block the prober alone.
	contradictions = 3
	// contradictedChecks is how many consecutive direct checks must be contradicted
	// before they are ignored. One may be a target that works for a moment during an
	// outage.
	contradictedChecks = 2
	// countWindow is how long probes through proxies are counted before the counts start
	// again from zero, at least. A single proxy needs contradictions+1 intervals.
	countWindow = time.Minute
)

// target is a probe target.
type target struct {
	name    string               // host:port
	check   v1alpha1.HealthCheck // what a direct check fetches: of the newest failure, or of the newest probe when there was none
	used    time.Time            // when the newest probe was
	proven  bool                 // a direct check reached it once: only then does one that fails show an outage
	through bool                 // a probe through a proxy reached it

	wanted     bool      // a check should be made
	checking   bool      // a check is under way
	begun      time.Time // when the newest check began
	lastWorked time.Time // when the newest check began that worked
	message    string    // of the newest check that failed

	down      bool
	downSince time.Time
	back      time.Time // when the check began that ended the last outage
	ignored   bool      // direct checks show nothing, until one works: probes contradict them, or none has worked yet
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

// TargetState is what the machine knows about a probe target.
type TargetState struct {
	Down          bool
	ChecksIgnored bool
	Proven        bool // a direct check reached it once
	Pending       int  // flips that wait for a direct check
}

// Targets returns the probe targets by host:port, none without direct checks.
func (m *Machine) Targets() map[string]TargetState {
	out := make(map[string]TargetState, len(m.targets))
	for name, t := range m.targets {
		out[name] = TargetState{t.down, t.ignored, t.proven, len(t.pending)}
	}
	return out
}

// use returns the target of a probe, nil without one or without direct checks, and has
// it checked now and then while probes work.
func (m *Machine) use(p Probe, now time.Time) *target {
	if !m.cfg.DirectCheck || p.Result.Target == "" {
		return nil
	}
	t := m.target(p.Result.Target, now)
	due := now.Sub(t.begun) >= baselineInterval && (now.Sub(m.baseline) >= baselinePause || now.Before(m.baseline))
	if due || p.Result.Outcome == probe.Failure {
		t.check = *p.HealthCheck
		t.check.ProbeURL = p.URL
	}
	if due && !t.wanted {
		m.baseline, t.wanted = now, true
		m.emit(Effect{Do: WantCheck})
	}
	t.through = t.through || p.Result.Reached()
	return t
}

func (m *Machine) target(name string, now time.Time) *target {
	t := m.targets[name]
	if t == nil {
		t = &target{name: name}
		m.targets[name] = t
	}
	t.used = now
	return t
}

// neverReached reports whether nothing in this process reached the target, neither a
// probe nor a direct check. It accepts nil.
func (t *target) neverReached() bool { return t != nil && !t.proven && !t.through }

// cleared reports whether the target did not cause a failure of that time, as far as
// direct checks can show.
func (t *target) cleared(failedAt time.Time) bool {
	return t.ignored || t.lastWorked.After(failedAt)
}

// sweep evicts idle targets, such as those that no ProxyProbe names any more.
func (m *Machine) sweep(now time.Time) {
	for _, t := range m.targets {
		if !t.checking && now.Sub(t.used) > max(TargetIdle, 3*t.check.Interval.Duration) {
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

// The text of suppressReason around the target's name.
const (
	beforeTarget = "the direct check of "
	afterTarget  = " fails too: "
)

// suppressReason is why failures with a target that is down do not count.
func (t *target) suppressReason() string { return beforeTarget + t.name + afterTarget + t.message }

// Announced is the event that a status shows this message. When it announces that a
// target is down, the process that wrote it had seen a direct check of the target work,
// so that a restart in an outage needs no direct check that works. A verdict Healthy
// alone shows that proxies reach the target, and not that the prober does.
func (m *Machine) Announced(message string, now time.Time) {
	_, rest, found := strings.Cut(message, beforeTarget)
	name, _, ended := strings.Cut(rest, afterTarget)
	if _, _, err := net.SplitHostPort(name); m.cfg.DirectCheck && found && ended && err == nil {
		m.target(name, now).proven = true
	}
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
	case t.down || t.wanted:
		return t.begun.Add(checkInterval), true
	}
	return time.Time{}, false
}
