package cloud

import (
	"context"

	"golang.org/x/sync/errgroup"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gc"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/reconcile"
)

// lead is one term: it begins knowing nothing and forgets everything.
func (a *Adapter) lead(ctx context.Context) {
	providers := a.decorated()
	e := reconcile.New(reconcile.Options{
		Installation: a.cfg.Installation, Providers: providers, Bucket: a.bucket,
		ListInterval: a.cfg.ListInterval, QuotaRetry: a.cfg.QuotaRetry, IntentTTL: intentTTL,
		CallTimeout: callTimeout, Concurrency: concurrency,
		Clock: a.clock, Metrics: a.metrics, Log: a.cfg.Log,
	})
	a.current.Store(e)
	defer a.current.Store(nil)
	defer a.server.Lead(e)()
	var g errgroup.Group
	g.Go(func() error { e.Run(ctx); return nil })
	if collector := a.collector(e, providers); collector != nil {
		g.Go(func() error { collector.Run(ctx); return nil })
	}
	_ = g.Wait() // neither returns an error
}

// decorated providers count their calls, and ask the lease before each that
// changes something.
func (a *Adapter) decorated() []provider.Named {
	out := make([]provider.Named, 0, len(a.cfg.Providers))
	for _, named := range a.cfg.Providers {
		named.Cloud = provider.WithMetrics(named.Name, named.Cloud, a.metrics, a.clock)
		if a.lease != nil {
			named.Cloud = provider.WithGuard(named.Cloud, a.lease)
		}
		out = append(out, named)
	}
	return out
}

func (a *Adapter) collector(e *reconcile.Reconciler, providers []provider.Named) *gc.Collector {
	if a.proxies == nil {
		return nil
	}
	if a.cfg.GCDisabled != "" {
		a.cfg.Log.Warn("orphans are not collected", "why", a.cfg.GCDisabled)
		return nil
	}
	return gc.New(gc.Config{
		Installation: a.cfg.Installation, Providers: providers, Proxies: a.proxies, Forget: e.Forget,
		Bucket: a.bucket, Interval: a.cfg.GCInterval, MinAge: a.cfg.GCMinAge, DryRun: a.cfg.GCDryRun,
		Clock: a.clock, Metrics: a.metrics, Log: a.cfg.Log,
	})
}
