package prober

import (
	"context"
	"errors"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/leader"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/health"
)

// leaseTimes are the durations of a shard's Lease.
type leaseTimes struct {
	// duration is how long a standby waits after the last renewal before it takes
	// over, deadline how long the leader writes after it, retry the retry period of
	// both.
	duration, deadline, retry time.Duration
	grace                     time.Duration // how long a leader continues to probe while it can neither renew its lease nor read the holder
}

// defaultLeaseTimes returns those of the controllers of Kubernetes. The grace is
// discovery's default --verdict-max-age, after which the verdicts of a shard without a
// lease are stale.
func defaultLeaseTimes() leaseTimes {
	return leaseTimes{duration: 15 * time.Second, deadline: 10 * time.Second, retry: 2 * time.Second, grace: 5 * time.Minute}
}

// newLease makes the shard's Lease. It is the lock among the replicas of the shard, and
// the heartbeat without which discovery treats the shard's verdicts as stale. A process
// whose scheduler is frozen does not renew it.
//
// Without another replica the holder acquires an expired lease again, so that neither
// a restart nor an outage makes verdicts stale.
func (p *Prober) newLease(cfg Config, c clients) *leader.Lease {
	return leader.New(leader.Config{
		Client: c.leases, Namespace: cfg.SystemNamespace, Name: cfg.Shard.LeaseName(), Identity: cfg.Holder,
		Labels:   map[string]string{v1alpha1.LabelProberShard: cfg.Shard.LeaseLabel()},
		Duration: p.times.duration, RenewDeadline: p.times.deadline, RetryPeriod: p.times.retry,
		Alive: p.runner.alive, Renewed: p.renewed, Outvoted: p.runner.standDown,
		Clock: cfg.Clock, Log: cfg.Log,
	})
}

// contend takes part in the election once the fleet is listed: a standby with an empty
// cache must not win.
func (p *Prober) contend(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-p.runner.synced:
		return p.lease.Run(ctx, func(held context.Context) { p.lead(ctx, held) })
	}
}

// lead probes and writes while the lease is held. When ctx ends, the process shuts
// down: the lease is kept until the last verdict is written.
func (p *Prober) lead(ctx, held context.Context) {
	p.runner.takeOver()
	<-held.Done()
	if ctx.Err() != nil {
		<-p.writer.drained
		return
	}
	p.runner.leaseLost(p.times.grace)
}

// renewed updates the metrics of the lease.
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

// mayWrite reports whether this process holds the lease, so that no other one writes
// verdicts of the shard.
func (p *Prober) mayWrite() bool {
	_, err := p.lease.Writer()
	return err == nil
}

// leads reports whether this process probes.
func (r *runner) leads() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leading
}

// takeOver starts probing and writing. Verdicts that are not written yet are enqueued
// at once. Probes that were due during standby are skipped. Statuses that announce an
// outage are evidence, as after a restart: standing by drops what was known of targets.
func (r *runner) takeOver() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = time.Time{}
	now := r.clock.Now()
	if !r.leading {
		r.leading = true
		r.rephase(now)
		for _, m := range r.monitors {
			r.outage.Announced(m.health.WrittenOutage(), now)
		}
	}
	for key, m := range r.monitors {
		if m.health.WriteReason(now) != health.NoWrite {
			r.enqueue(key)
		}
	}
	notify(r.wake)
}

// leaseLost lets the runner continue for a grace period: while the API server is down
// no prober can renew the lease.
func (r *runner) leaseLost(grace time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = r.clock.Now().Add(grace)
}

// standDown stops probing and writing at once, since another process does both. What
// is not written yet is dropped.
func (r *runner) standDown() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.standBy()
}

func (r *runner) standBy() {
	if !r.leading {
		return
	}
	r.leading = false
	r.apply(r.outage.Reset(), r.clock.Now())
	r.metrics.setOutages(nil, false)
	for key, m := range r.monitors {
		if m.cancel != nil {
			m.cancel()
		}
		m.health.Rollback()
		r.outage.SetStanding(key, m.standing())
	}
}

// mayProbe reports whether probes may be dispatched.
func (r *runner) mayProbe(now time.Time) bool {
	if r.leading && !r.until.IsZero() && now.After(r.until) {
		r.log.Warn("probing stopped: no prober could renew the lease within the grace period")
		r.standBy()
	}
	return r.leading
}
