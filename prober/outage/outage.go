// Package outage keeps a probe target that is down, or a broken network on the
// prober's side, from turning the fleet Unhealthy. It has two rules:
//
//   - A probe target whose direct check fails too is down: failures that it may have
//     caused are suppressed, and a verdict flips only after a direct check that began
//     after the failure and worked. A direct check that never worked is no evidence
//     (target.go).
//   - When a large share of the fleet does not answer, no silent proxy turns Unhealthy
//     for a while. One that answers does, whatever the others do (fleet.go).
//
// Machine is a pure state machine: events go in, effects come out, the time is passed
// in. The caller carries the effects out in order and makes the direct checks.
package outage

import (
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
	FleetShare  float64       // the share of the proxies that must be silent at once for the flips of silent ones to be suppressed, 0 for never
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

// Machine is the state of all probe targets and of the fleet. It is not safe for
// concurrent use.
type Machine struct {
	cfg       Config
	proxies   map[Key]*proxy
	targets   map[string]*target // by host:port of the probe URL
	swept     time.Time          // when idle targets were last evicted
	baseline  time.Time          // when a direct check was last wanted without a failure
	fleet     fleet
	announced int
	effects   []Effect // of the current event
}

// New returns a Machine that knows no proxy.
func New(cfg Config) *Machine {
	return &Machine{cfg: cfg, proxies: map[Key]*proxy{}, targets: map[string]*target{}}
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
	x.Standing = s
}

// Remove is the event that a proxy or its instance is gone.
func (m *Machine) Remove(key Key) {
	if x := m.proxies[key]; x != nil {
		x.clear() // a target may still refer to it
		delete(m.proxies, key)
	}
}

// Clear is the event that a verdict was replaced by Unknown or by another process's.
func (m *Machine) Clear(key Key) {
	if x := m.proxies[key]; x != nil {
		x.clear()
	}
}

// Tick is the event that time passed. It ends what no probe ends: proxies may be
// deleted or get another probe URL while verdicts are held because of them.
func (m *Machine) Tick(now time.Time) []Effect {
	if !m.fleet.since.IsZero() {
		m.fleetFails(nil, now)
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
		x.resultAt = time.Time{} // of another time
	}
	m.fleet, m.announced = fleet{}, 0
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
