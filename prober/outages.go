package prober

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/outage"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// directCheck fetches the probe URL of a health check without a proxy.
type directCheck func(context.Context, v1alpha1.HealthCheck) probe.Result

// startChecks starts the direct checks that are due, and returns how long to sleep.
func (r *runner) startChecks(ctx context.Context, running *errgroup.Group) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	checks, wait := r.outage.StartChecks(r.clock.Now())
	for _, c := range checks {
		running.Go(func() error {
			r.checkDone(c, r.direct(ctx, c.HealthCheck))
			return nil
		})
	}
	return wait
}

// checkDone records the result of a direct check.
func (r *runner) checkDone(c outage.StartCheck, result probe.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	r.applyLate(r.outage.CheckDone(c, result, now), now)
}

// applyLate carries out effects that no probe caused, and logs their flips.
func (r *runner) applyLate(effects []outage.Effect, now time.Time) {
	r.apply(effects, now)
	for i := range effects {
		if m := r.monitors[effects[i].Key]; effects[i].Do == outage.MarkUnhealthy && m != nil {
			last := m.health.LastProbe()
			r.log.Info("verdict", "proxy", m.key.Name, "namespace", m.key.Namespace, "instanceID", m.spec.instanceID,
				"verdict", m.health.Verdict, "reason", last.Reason, "message", last.Message)
		}
	}
}

// apply carries out the effects of an event of the outage rules.
func (r *runner) apply(effects []outage.Effect, now time.Time) {
	for i := range effects {
		e := &effects[i]
		switch m := r.monitors[e.Key]; {
		case e.Do == outage.WantCheck:
			notify(r.wakeChecks)
		case e.Do == outage.Log:
			r.log.LogAttrs(context.Background(), e.Level, e.Text, e.Attrs...)
			r.metrics.setOutages(r.outage.Targets(), r.outage.FleetHeld())
		case m != nil:
			r.applyTo(m, e, now)
		}
	}
}

func (r *runner) applyTo(m *monitor, e *outage.Effect, now time.Time) {
	switch e.Do {
	case outage.AttributeToProxy:
		m.health.AttributeToProxy()
	case outage.DropFailures:
		m.health.DropFailures()
		r.outage.SetStanding(m.key, m.standing())
	case outage.Suppress:
		m.health.Suppress(e.Text, e.Announce)
	case outage.Release:
		m.health.Release()
	case outage.MarkUnhealthy:
		m.health.MarkUnhealthy(now)
		r.outage.SetStanding(m.key, m.standing())
	case outage.WriteStatus:
		r.enqueue(m.key)
	}
}
