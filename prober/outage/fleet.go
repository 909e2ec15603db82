package outage

import (
	"fmt"
	"log/slog"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

const (
	MinFleet        = 10          // the smallest fleet whose common failure means anything
	flipWindow      = time.Minute // how long a proxy that turned Unhealthy counts as failing now
	measureInterval = time.Second // the least time between two measurements of the fleet
)

// fleet counts how much of the fleet fails at once.
type fleet struct {
	healthy int             // Healthy proxies
	failing int             // those among them whose newest probe failed
	flipped map[*proxy]bool // turned from Healthy to Unhealthy, a short while ago

	measured time.Time
	since    time.Time // start of the hold, zero while there is none
	text     string
}

func (f *fleet) remove(x *proxy) {
	f.count(x, -1)
	delete(f.flipped, x)
}

func (f *fleet) count(x *proxy, n int) {
	switch {
	case x.Verdict == v1alpha1.VerdictHealthy:
		f.healthy += n
		if x.Failing {
			f.failing += n
		}
	case !x.FlippedAt.IsZero():
		f.flipped[x] = true
	}
}

// measure returns how many proxies are Healthy, or were a moment ago, and how many of
// them fail now.
func (f *fleet) measure(now time.Time) (failing, all int) {
	for x := range f.flipped {
		if now.Sub(x.FlippedAt) >= flipWindow {
			delete(f.flipped, x)
		}
	}
	return f.failing + len(f.flipped), f.healthy + len(f.flipped)
}

// FleetHeld reports whether the fleet rule holds verdicts, or did until FleetHold ran
// out while the fleet still fails.
func (m *Machine) FleetHeld() bool { return !m.fleet.since.IsZero() }

// fleetFails measures the fleet, unless that was done a moment ago, and reports
// whether flips are suppressed because of it.
func (m *Machine) fleetFails(now time.Time) bool {
	if m.cfg.FleetShare <= 0 {
		return false
	}
	if now.Sub(m.fleet.measured) >= measureInterval || now.Before(m.fleet.measured) {
		m.fleet.measured = now
		m.measureFleet(now)
	}
	return m.fleetHeld(now)
}

// fleetHeld reports whether flips are suppressed because of the fleet, as of its last
// measurement.
func (m *Machine) fleetHeld(now time.Time) bool {
	return !m.fleet.since.IsZero() && now.Sub(m.fleet.since) < m.cfg.FleetHold
}

// measureFleet begins or ends the hold. It ends at half the share, so that a fleet
// near the limit does not flap.
func (m *Machine) measureFleet(now time.Time) {
	f := &m.fleet
	failing, all := f.measure(now)
	share := float64(failing) / float64(max(all, 1))
	f.text = fmt.Sprintf("%d of %d healthy proxies fail at once", failing, all)
	switch {
	case f.since.IsZero() && all >= MinFleet && share > m.cfg.FleetShare:
		f.since = now
		m.log(slog.LevelWarn, "much of the fleet fails at once; verdicts are held",
			slog.Int("failing", failing), slog.Int("of", all), slog.Duration("atMost", m.cfg.FleetHold))
	case !f.since.IsZero() && (share < m.cfg.FleetShare/2 || all < MinFleet):
		expired := !m.fleetHeld(now)
		f.since = time.Time{}
		m.log(slog.LevelInfo, "the fleet no longer fails at once; failures count again", slog.Int("failing", failing), slog.Int("of", all))
		if !expired {
			m.endFleetHold()
		}
	}
}

// endFleetHold ends a hold in time: the failures of that time are dropped.
func (m *Machine) endFleetHold() {
	for _, x := range m.proxies {
		if x.failuresMatter() {
			m.dropFailures(x)
		}
	}
	m.releaseAll()
}
