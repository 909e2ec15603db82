package outage

import (
	"fmt"
	"log/slog"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

const (
	MinFleet        = 10          // how many results are evidence about the fleet; fewer hold nothing
	flipWindow      = time.Minute // how long a proxy that turned Unhealthy counts as silent, and the least age at which a result is too old
	measureInterval = time.Second // the least time between two measurements of the fleet
)

// fleet is the rule about the whole fleet. Only silence may be the prober's own fault:
// an answer, be it a refusal, proves that its network works.
type fleet struct {
	measured time.Time
	since    time.Time // start of the hold, zero while there is none
	from     time.Time // older results do not count in this hold
	text     string
	held     []*proxy // flips that wait for the end of the hold
}

// FleetHeld reports whether the fleet rule holds verdicts, or did until FleetHold ran
// out while the fleet is still silent.
func (m *Machine) FleetHeld() bool { return !m.fleet.since.IsZero() }

// fleetFails measures the fleet, unless that was done a moment ago, and reports whether
// flips for silence are suppressed. x is the proxy that fails, nil for none.
func (m *Machine) fleetFails(x *proxy, now time.Time) bool {
	if m.cfg.FleetShare <= 0 {
		return false
	}
	if now.Sub(m.fleet.measured) >= measureInterval || now.Before(m.fleet.measured) {
		m.fleet.measured = now
		m.measureFleet(x, now)
	}
	held := m.fleetHeld(now)
	if !held {
		m.releaseHeld(now)
	}
	return held
}

// fleetHeld reports whether flips for silence are suppressed, as of the last
// measurement.
func (m *Machine) fleetHeld(now time.Time) bool {
	return !m.fleet.since.IsZero() && now.Sub(m.fleet.since) < m.cfg.FleetHold
}

// window returns from when on results are compared with the failures of x: what
// answered before they began proves nothing about now.
func (m *Machine) window(x *proxy, now time.Time) time.Time {
	from := now.Add(-flipWindow)
	switch {
	case !m.fleet.since.IsZero():
		return m.fleet.from
	case x != nil && !x.failingSince.IsZero() && x.failingSince.Before(from):
		return x.failingSince
	}
	return from
}

// countSilent counts the proxies with a result in this process since the given time,
// and those among them that are Healthy, or were a moment ago, and do not answer.
func (m *Machine) countSilent(from, now time.Time) (silent, all int) {
	for _, x := range m.proxies {
		switch {
		case x.resultAt.IsZero() || x.resultAt.Before(from):
		case !x.silent:
			all++
		case x.Verdict == v1alpha1.VerdictHealthy || !x.FlippedAt.IsZero() && now.Sub(x.FlippedAt) < flipWindow:
			silent, all = silent+1, all+1
		}
	}
	return silent, all
}

// measureFleet begins or ends the hold. It ends at half the share, so that a fleet
// near the limit does not flap.
func (m *Machine) measureFleet(x *proxy, now time.Time) {
	f, from := &m.fleet, m.window(x, now)
	silent, all := m.countSilent(from, now)
	share := float64(silent) / float64(max(all, 1))
	f.text = fmt.Sprintf("%d of %d proxies do not answer", silent, all)
	switch {
	case f.since.IsZero() && all >= MinFleet && share > m.cfg.FleetShare:
		f.since, f.from = now, from
		m.log(slog.LevelWarn, "much of the fleet does not answer; verdicts are held",
			slog.Int("silent", silent), slog.Int("of", all), slog.Duration("atMost", m.cfg.FleetHold))
	case !f.since.IsZero() && (share < m.cfg.FleetShare/2 || all < MinFleet):
		expired := !m.fleetHeld(now)
		f.since = time.Time{}
		m.log(slog.LevelInfo, "the fleet answers again; failures count again", slog.Int("silent", silent), slog.Int("of", all))
		if !expired {
			m.endFleetHold()
		}
	}
}

// endFleetHold ends a hold in time: the silence of that time is dropped.
func (m *Machine) endFleetHold() {
	m.fleet.held = nil
	for _, x := range m.proxies {
		if x.failuresMatter() && x.silentRun {
			m.dropFailures(x)
		}
	}
	m.releaseAll()
}

// hold keeps a flip until the hold ends.
func (m *Machine) hold(x *proxy) {
	if !x.held {
		m.fleet.held = append(m.fleet.held, x)
	}
	x.held, x.pendingSince = true, time.Time{}
	m.suppress(x, m.fleet.text)
}

// releaseHeld flips what was held, all at once, when the hold ran out: the next probes
// of a silent fleet would take minutes.
func (m *Machine) releaseHeld(now time.Time) {
	held := m.fleet.held
	m.fleet.held = nil
	for _, x := range held {
		if !x.held {
			continue
		}
		x.held = false
		if !m.waitForCheck(x, now) {
			m.flipLate(x)
		}
	}
}
