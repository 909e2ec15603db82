package prober

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// fleetWatch knows how much of the fleet fails at once.
type fleetWatch struct {
	measured time.Time
	since    time.Time // zero while the fleet is well
	text     string
}

// fleetFails reports whether verdicts are held because of the fleet as a whole. It
// counts the fleet, if that was not done just now.
func (g *guard) fleetFails(fleet map[types.NamespacedName]*target, now time.Time) bool {
	if g.cfg.FleetShare <= 0 {
		return false
	}
	if now.Sub(g.fleet.measured) >= fleetMeasure || now.Before(g.fleet.measured) {
		g.fleet.measured = now
		g.measure(fleet, now)
	}
	return g.holding(now)
}

// holding reports whether verdicts are held because of the fleet, as it was when it
// was counted last.
func (g *guard) holding(now time.Time) bool {
	return !g.fleet.since.IsZero() && now.Sub(g.fleet.since) < g.cfg.FleetHold
}

// measure begins or ends the hold. It ends at half the share, so that a fleet at
// the edge does not go back and forth.
func (g *guard) measure(fleet map[types.NamespacedName]*target, now time.Time) {
	failing, all := failingNow(fleet, now)
	share := 0.0
	if all > 0 {
		share = float64(failing) / float64(all)
	}
	g.fleet.text = fmt.Sprintf("%d of %d healthy proxies fail at once", failing, all)
	switch holding := !g.fleet.since.IsZero(); {
	case !holding && all >= fleetLeast && share > g.cfg.FleetShare:
		g.fleet.since = now
		g.metrics.targetDown.WithLabelValues(causeFleet).Set(1)
		g.log.Warn("much of the fleet fails at once; verdicts are held", "failing", failing, "of", all, "atMost", g.cfg.FleetHold)
	case holding && (share < g.cfg.FleetShare/2 || all < fleetLeast):
		expired := now.Sub(g.fleet.since) >= g.cfg.FleetHold
		g.fleet.since = time.Time{}
		g.metrics.targetDown.WithLabelValues(causeFleet).Set(0)
		g.log.Info("the fleet no longer fails at once; verdicts count again", "failing", failing, "of", all)
		if !expired {
			g.over(fleet)
		}
	}
}

// failingNow counts the proxies that are Healthy, or were a moment ago, and those
// among them whose newest probe failed.
func failingNow(fleet map[types.NamespacedName]*target, now time.Time) (failing, all int) {
	for _, t := range fleet {
		switch {
		case t.tally.verdict == v1alpha1.VerdictHealthy:
			all++
			// Whose newest probe is held because its target is down is accounted for.
			if t.tally.failures > 0 && t.trouble != probe.ReasonProbeTargetDown {
				failing++
			}
		case t.tally.verdict == v1alpha1.VerdictUnhealthy && t.met && now.Sub(t.tally.since) < fleetWindow:
			all++
			failing++
		}
	}
	return failing, all
}
