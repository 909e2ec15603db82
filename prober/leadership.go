package prober

import (
	"context"
	"errors"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/leader"
)

// leaseTimes of a shard's Lease.
type leaseTimes struct {
	// duration is how long a standby waits after the last renewal before it takes
	// over, deadline how long the leader writes after it, retry how often both look.
	duration, deadline, retry time.Duration
	// grace is how long a leader goes on probing that can neither renew its lease nor
	// see who holds it.
	grace time.Duration
}

// defaultLeaseTimes are those of the controllers of Kubernetes. The grace is
// discovery's default --verdict-max-age: after that nobody believes the verdicts
// of a shard without a lease.
func defaultLeaseTimes() leaseTimes {
	return leaseTimes{duration: 15 * time.Second, deadline: 10 * time.Second, retry: 2 * time.Second, grace: 5 * time.Minute}
}

// newLease makes the shard's Lease, which is two things: the lock among the
// replicas of the shard, and the sign of life by which discovery believes its
// verdicts. A process whose scheduler stands still does not renew it.
//
// Without a replica to take over the holder of a lease that has run out takes it
// again, so that a restart or an outage makes no verdict doubtful.
func (p *Prober) newLease(cfg Config, c clients) *leader.Lease {
	return leader.New(leader.Config{
		Client: c.leases, Namespace: cfg.SystemNamespace, Name: cfg.Shard.LeaseName(), Identity: cfg.Holder,
		Labels:   map[string]string{v1alpha1.LabelProberShard: cfg.Shard.LeaseLabel()},
		Duration: p.times.duration, RenewDeadline: p.times.deadline, RetryPeriod: p.times.retry,
		Alive: p.engine.alive, Renewed: p.renewed, Outvoted: p.engine.standDown,
		Clock: cfg.Clock, Log: cfg.Log,
	})
}

// contend takes part in the election as soon as the fleet is known: a standby that
// is not warm must not win.
func (p *Prober) contend(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-p.engine.known:
		return p.lease.Run(ctx, func(held context.Context) { p.lead(ctx, held) })
	}
}

// lead probes and writes for as long as the lease is held. At the end of the process,
// which is that of ctx, the lease is kept until the last verdict is written.
func (p *Prober) lead(ctx, held context.Context) {
	p.engine.takeOver()
	<-held.Done()
	if ctx.Err() != nil {
		<-p.writer.drained
		return
	}
	p.engine.goOn(p.times.grace)
}

// renewed keeps the metrics of the lease.
func (p *Prober) renewed(err error) {
	switch {
	case err == nil:
		p.metrics.renewed.Set(float64(p.clock.Now().Unix()))
		p.metrics.renewals.WithLabelValues("success").Inc()
	case errors.Is(err, leader.ErrWithheld):
		p.metrics.renewals.WithLabelValues("withheld").Inc()
	default:
		p.metrics.renewals.WithLabelValues("failure").Inc()
	}
}

// mayWrite reports whether no other process may write verdicts about the shard.
func (p *Prober) mayWrite() bool {
	_, err := p.lease.Writer()
	return err == nil
}

// takeOver makes the engine probe and report. Verdicts that are not written yet are
// reported at once. After standing by, what was due meanwhile is not made up for.
func (e *engine) takeOver() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.until = time.Time{}
	now := e.clock.Now()
	if !e.leading {
		e.leading = true
		e.rephase(now)
	}
	for key, t := range e.targets {
		if t.occasion(now) != noOccasion {
			e.pending(key)
		}
	}
	e.nudge()
}

// goOn lets the engine go on for a while without a lease: an API server that is
// away keeps everybody from renewing it.
func (e *engine) goOn(grace time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.until = e.clock.Now().Add(grace)
}

// standDown stops probing and reporting at once, since another process does both.
// What is not written yet counts for nothing from here on.
func (e *engine) standDown() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.standBy()
}

func (e *engine) standBy() {
	if !e.leading {
		return
	}
	e.leading = false
	e.guard.rest()
	for _, t := range e.targets {
		if t.cancel != nil {
			t.cancel()
		}
		t.fallBack()
	}
}

// mayProbe reports whether probes may be handed out.
func (e *engine) mayProbe(now time.Time) bool {
	if e.leading && !e.until.IsZero() && now.After(e.until) {
		e.log.Warn("probing stopped: nobody has been able to renew the lease for long")
		e.standBy()
	}
	return e.leading
}

// rephase brings every due time into the coming interval, each at its own phase in
// it, so that nothing is made up for after a pause and nothing waits for a time that
// a jump of the clock has put far away. Proxies without a verdict are due at once.
func (e *engine) rephase(now time.Time) {
	for _, t := range e.targets {
		if t.tally.verdict == "" {
			t.due, t.spread = now, true
		} else {
			interval := t.order.interval()
			phase := t.due.Sub(now) % interval
			if phase < 0 {
				phase += interval
			}
			t.due = now.Add(phase)
		}
		if t.index >= 0 {
			e.due.push(t)
		}
	}
}
