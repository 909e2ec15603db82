// Package outage keeps a probe target that is down, or a broken network on the
// prober's side, from turning the fleet Unhealthy. It has two rules:
//
//   - A probe target whose direct check fails too is down: failures that it may have
//     caused are suppressed, and a verdict flips only after a direct check that began
//     after the failure and worked (target.go).
//   - When a large share of the fleet fails at once, no verdict turns to Unhealthy for
//     a while, whatever the failures look like (fleet.go).
//
// Machine is a pure state machine: events go in, effects come out, the time is passed
// in. The caller carries the effects out in order and makes the direct checks.
package outage

import (
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// Config configures when failures are suppressed.
type Config struct {
	// DirectCheck fetches the probe URL without a proxy before a verdict turns to
	// Unhealthy for failures that the probe target may have caused.
	DirectCheck bool
	TargetHold  time.Duration // how long verdicts are kept while their probe target is down. Then they turn to Unknown
	FleetShare  float64       // the share of the Healthy proxies that must fail at once for all flips to be suppressed, 0 for never
	FleetHold   time.Duration // the longest that they are then suppressed
}

const (
	sweepInterval = time.Minute // how often idle probe targets are evicted
	// MaxAnnounced is how many statuses show that flips are suppressed. Those of a
	// whole large fleet would be as many writes as the flips that are suppressed.
	MaxAnnounced = 16
)

// Key names a proxy.
type Key = types.NamespacedName

// Action is what an Effect does.
type Action int

// The actions. All but WantCheck and Log are about the proxy named by Effect.Key.
const (
	AttributeToProxy Action = iota // no outage explains the proxy's failures so far
	DropFailures                   // drop the failures that are not attributed to the proxy
	Suppress                       // failures do not count, for the reason in Text; with Announce the status shows it
	Release                        // ends Suppress
	MarkUnhealthy                  // flip the verdict that ThresholdReached announced
	WriteStatus                    // the status may have to be written
	WantCheck                      // call StartChecks again soon
	Log                            // log Text at Level with Attrs
)

// Effect is what the caller must do about an event.
type Effect struct {
	Do       Action
	Key      Key
	Text     string
	Announce bool
	Level    slog.Level
	Attrs    []slog.Attr
}

// Standing is what the machine needs to know about the health of a proxy.
type Standing struct {
	Verdict   v1alpha1.Verdict
	Failing   bool      // the newest probes failed, and not because of a target that is down
	FlippedAt time.Time // when a proxy that was Healthy turned Unhealthy, zero for others
}

// Probe is a probe and its result.
type Probe struct {
	Key         Key
	Started     time.Time
	HealthCheck *v1alpha1.HealthCheck
	URL         string // of the probe
	Result      probe.Result
}

// proxy is the state of one proxy.
type proxy struct {
	key Key
	Standing
	lastFailed            *target   // the target of the newest failure that it may have caused
	failedAt              time.Time // when that failure was
	mixed                 bool      // an older such failure has another target
	pendingSince          time.Time // when the failures reached the threshold, while the flip waits for a direct check; else zero
	suppressed, announced bool
}

// failuresMatter reports whether failures can change the verdict.
func (x *proxy) failuresMatter() bool { return x.Verdict != v1alpha1.VerdictUnhealthy }

// clear ends what is known about failures: none are left that could flip the verdict.
func (x *proxy) clear() {
	x.dropFailures()
	x.suppressed, x.announced = false, false
}

func (x *proxy) dropFailures() { x.lastFailed, x.mixed, x.pendingSince = nil, false, time.Time{} }

// Machine is the state of all probe targets and of the fleet. It is not safe for
// concurrent use.
type Machine struct {
	cfg       Config
	proxies   map[Key]*proxy
	targets   map[string]*target // by host:port of the probe URL
	swept     time.Time          // when idle targets were last evicted
	fleet     fleet
	announced int
	effects   []Effect // of the current event
}

// New returns a Machine that knows no proxy.
func New(cfg Config) *Machine {
	return &Machine{cfg: cfg, proxies: map[Key]*proxy{}, targets: map[string]*target{}, fleet: fleet{flipped: map[*proxy]bool{}}}
}

func (m *Machine) emit(e Effect) { m.effects = append(m.effects, e) }

func (m *Machine) log(level slog.Level, text string, attrs ...slog.Attr) {
	m.emit(Effect{Do: Log, Level: level, Text: text, Attrs: attrs})
}

// take ends an event.
func (m *Machine) take() []Effect {
	effects := m.effects
	m.effects = nil
	return effects
}

// SetStanding is the event that the health of a proxy changed, or that the proxy is
// new.
func (m *Machine) SetStanding(key Key, s Standing) {
	x := m.proxies[key]
	if x == nil {
		x = &proxy{key: key}
		m.proxies[key] = x
	}
	m.fleet.remove(x)
	x.Standing = s
	m.fleet.count(x, 1)
}

// Remove is the event that a proxy or its instance is gone.
func (m *Machine) Remove(key Key) {
	if x := m.proxies[key]; x != nil {
		x.clear() // a target may still refer to it
		m.fleet.remove(x)
		delete(m.proxies, key)
	}
}

// Clear is the event that a verdict was replaced by Unknown or by another process's.
func (m *Machine) Clear(key Key) {
	if x := m.proxies[key]; x != nil {
		x.clear()
	}
}

// Probed is the event that a probe ended, before its result counts. It returns the
// result, turned into an inconclusive one where it must not count.
func (m *Machine) Probed(p Probe, now time.Time) (probe.Result, []Effect) {
	x, r := m.proxies[p.Key], p.Result
	if x == nil {
		return r, nil
	}
	if r.Outcome == probe.Failure && x.failuresMatter() || !m.fleet.since.IsZero() {
		m.fleetFails(now) // to notice when it begins and ends
	}
	switch r.Outcome {
	case probe.Success:
		x.clear()
		if t := m.targets[r.Target]; t != nil && t.reached(p.Started) {
			m.emit(Effect{Do: WantCheck})
		}
	case probe.Failure:
		m.attributeToProxy(x, now) // the failures before this one
		if m.cfg.DirectCheck && r.Target != "" && r.Reason.Far() && x.failuresMatter() {
			r = m.attributeToTarget(x, p, now)
		}
	}
	return r, m.take()
}

// attributeToTarget notes a failure that the probe target may have caused, or
// suppresses it.
func (m *Machine) attributeToTarget(x *proxy, p Probe, now time.Time) probe.Result {
	t := m.target(p, now)
	switch {
	case t.down:
		t.failed++
		m.suppress(x, t.suppressReason())
		return suppressed(p.Result, t.suppressReason())
	case p.Started.Before(t.back):
		return suppressed(p.Result, t.name+" was down when the probe began")
	case !t.ignored:
		x.mixed = x.mixed || x.lastFailed != nil && x.lastFailed.name != t.name
		x.lastFailed, x.failedAt = t, now
	}
	t.wanted = true
	m.emit(Effect{Do: WantCheck})
	return p.Result
}

// attributeToProxy attributes the failures so far to the proxy: no target may have
// caused them, or it worked in a direct check after the newest. A later outage does
// not take that back, otherwise a target that is down now and then would keep a dead
// proxy Healthy for ever. While the fleet is held a direct check proves nothing, nor
// does it for the failures that made the hold begin.
func (m *Machine) attributeToProxy(x *proxy, now time.Time) {
	if x.mixed || x.lastFailed != nil && !x.lastFailed.lastWorked.After(x.failedAt) || m.fleetHeld(now) {
		return
	}
	x.lastFailed = nil
	m.emit(Effect{Do: AttributeToProxy, Key: x.key})
}

// ThresholdReached is the event that the failures of a proxy reached the threshold.
// The verdict flips now, after a direct check, or not at all.
func (m *Machine) ThresholdReached(p Probe, now time.Time) []Effect {
	x := m.proxies[p.Key]
	if x == nil || !x.pendingSince.IsZero() {
		return nil
	}
	if m.fleetFails(now) {
		m.suppress(x, m.fleet.text)
		return m.take()
	}
	if m.cfg.DirectCheck && p.Result.Target != "" && p.Result.Reason.Far() {
		if t := m.target(p, now); !t.ignored && t.lastWorked.Before(now) {
			x.pendingSince = now
			t.pending = append(t.pending, x)
			m.emit(Effect{Do: WantCheck})
			return m.take()
		}
	}
	m.markUnhealthy(x)
	return m.take()
}

func (m *Machine) markUnhealthy(x *proxy) {
	x.clear()
	m.emit(Effect{Do: MarkUnhealthy, Key: x.key})
}

// Tick is the event that time passed. It ends what no probe ends: proxies may be
// deleted or get another probe URL while verdicts are held because of them.
func (m *Machine) Tick(now time.Time) []Effect {
	if !m.fleet.since.IsZero() {
		m.fleetFails(now)
	}
	if age := now.Sub(m.swept); age >= sweepInterval || age < 0 {
		m.swept = now
		m.sweep(now)
	}
	return m.take()
}

// Reset is the event that another process probes from now on.
func (m *Machine) Reset() []Effect {
	for _, t := range m.targets {
		m.evict(t)
	}
	for _, x := range m.proxies {
		x.clear()
	}
	m.fleet.since, m.fleet.measured, m.announced = time.Time{}, time.Time{}, 0
	return m.take()
}

// InconclusiveLimit returns how many consecutive inconclusive probes turn a verdict to
// Unknown when the newest one has this reason: at least the given number, and as many
// as fit into TargetHold while the probe target is down.
func (m *Machine) InconclusiveLimit(reason probe.Reason, interval time.Duration, least int32) int32 {
	if reason != probe.ReasonProbeTargetDown {
		return least
	}
	return max(least, int32(min(m.cfg.TargetHold/interval, 1<<20)))
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
// corrected after the next probe.
func (m *Machine) releaseAll() {
	m.announced = 0
	for key, x := range m.proxies {
		if !x.failuresMatter() {
			continue
		}
		if x.suppressed {
			m.emit(Effect{Do: Release, Key: key})
		}
		if x.announced {
			m.emit(Effect{Do: WriteStatus, Key: key})
		}
		x.pendingSince, x.suppressed, x.announced = time.Time{}, false, false
	}
}
