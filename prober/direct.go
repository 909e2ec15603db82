package prober

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// directCheck fetches the probe URL of a health check without a proxy.
type directCheck func(context.Context, v1alpha1.HealthCheck) probe.Result

// watchTargets makes the direct checks that the guard wants, until ctx ends.
func (e *engine) watchTargets(ctx context.Context) error {
	var g errgroup.Group
	timer := e.clock.NewTimer(tick)
	defer timer.Stop()
	for {
		timer.Reset(e.checkTargets(ctx, &g))
		select {
		case <-ctx.Done():
			return g.Wait()
		case <-e.guard.wake:
		case <-timer.C():
		}
	}
}

// checkTargets begins what is due, and returns how long nothing else is.
func (e *engine) checkTargets(ctx context.Context, g *errgroup.Group) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	now, wait := e.clock.Now(), time.Minute
	for _, s := range e.guard.sites {
		due, wanted := s.due()
		if !wanted {
			continue
		}
		if left := due.Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		hc := s.begin(now)
		g.Go(func() error {
			e.checked(s, e.guard.check(ctx, hc))
			return nil
		})
	}
	return wait
}

// checked takes in the result of a direct check. One that could not be made says
// nothing, and no verdict waits for another.
func (e *engine) checked(s *site, r probe.Result) {
	e.mu.Lock()
	now := e.clock.Now()
	heard := s.end(r, now)
	var flipped []conviction
	switch {
	case e.guard.sites[s.name] != s: // forgotten meanwhile
	case r.Outcome == probe.Failure && s.against >= refutations:
		e.guard.contradicted(s, e.targets, now)
	case r.Outcome == probe.Failure && !s.void:
		e.guard.isDown(s, heard, e.targets, now)
	case r.Outcome == probe.Success && s.down:
		e.guard.isUp(s, e.targets, now)
	default:
		flipped = e.hear(heard, now)
	}
	e.mu.Unlock()
	e.guard.nudge()
	for _, c := range flipped {
		e.pending(c.key)
		e.log.Info("verdict", "proxy", c.key.Name, "namespace", c.key.Namespace, "instanceID", c.instance,
			"verdict", v1alpha1.VerdictUnhealthy, "reason", c.result.Reason, "message", c.result.Message)
	}
}

// conviction is a verdict that waited for a direct check.
type conviction struct {
	key      types.NamespacedName
	instance string
	result   finding
}

// hear judges those whose target is not to blame.
func (e *engine) hear(accused []*target, now time.Time) []conviction {
	var flipped []conviction
	for _, t := range accused {
		if e.targets[t.key] != t || t.accused == nil {
			continue
		}
		t.accused.waits = false
		if e.guard.fleetFails(e.targets, now) {
			e.guard.mark(t, e.guard.fleet.text)
			continue
		}
		t.condemn(now)
		flipped = append(flipped, conviction{t.key, t.order.instanceID, t.evidence.result})
	}
	return flipped
}

// isDown notes that the direct check fails as well. Failures since it last worked do
// not count.
func (g *guard) isDown(s *site, accused []*target, fleet map[types.NamespacedName]*target, now time.Time) {
	if !s.down {
		s.down, s.since = true, now
		g.metrics.targetDown.WithLabelValues(causeDirect).Inc()
		g.log.Warn("the probe target is down: a direct check fails as probes do; verdicts are held", "target", s.name, "message", s.message)
		g.blame(s, fleet, now)
	}
	for _, t := range accused {
		t.forget()
		g.mark(t, s.excuse())
		g.pending(t.key)
	}
}

// blame has a target answer for what failed with it since it last worked. Nobody
// is accused of that any more.
func (g *guard) blame(s *site, fleet map[types.NamespacedName]*target, now time.Time) {
	for _, t := range fleet {
		if t.behind != nil {
			g.attribute(t, now)
		}
		if t.mixed || t.behind != nil && t.behind.name == s.name {
			t.forget()
		}
	}
	for _, t := range s.waiting {
		t.accused = nil
	}
	s.waiting = nil
}

func (g *guard) isUp(s *site, fleet map[types.NamespacedName]*target, now time.Time) {
	s.down, s.back = false, s.begun
	g.metrics.targetDown.WithLabelValues(causeDirect).Dec()
	g.log.Info("the probe target is back; verdicts count again", "target", s.name, "downFor", now.Sub(s.since))
	g.resume(fleet)
}

// contradicted: proxies reach what the direct check does not.
func (g *guard) contradicted(s *site, fleet map[types.NamespacedName]*target, now time.Time) {
	s.down, s.void = false, true
	g.metrics.targetDown.WithLabelValues(causeDirect).Dec()
	g.log.Warn("the direct check of the probe target is ignored until it works: proxies reach the target", "target", s.name,
		"message", s.message, "downFor", now.Sub(s.since), "hint", "allow the prober to reach it, or set --direct-check=false")
	g.resume(fleet)
}
