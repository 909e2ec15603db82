// Package gc deletes instances whose Proxy is gone for good: what a crash, a
// removed finalizer or a mistake has left behind. It is the one part of the
// system that deletes what nobody asked to have deleted, so that it would
// rather leave ten orphans than touch one instance in use.
//
// An instance goes only if all of this holds:
//
//   - it carries our installation label and a UID label;
//   - it is older than the minimum age, so that it is not being made;
//   - no Proxy has its UID, where one that is being deleted counts as alive,
//     since its finalizer owns that deletion;
//   - that was so on the sweep before as well;
//   - the list of instances had no gap, the list of Proxies succeeded, and was
//     made after it;
//   - no more than max(3, 20 %) of the account's instances would go with it;
//   - a fresh read shows the same instance with the same labels.
package gc

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

const (
	// breakerLeast is how many instances may always go in one sweep.
	breakerLeast = 3
	// breakerShare of an account's instances may go in one sweep.
	breakerShare = 0.2
	// listTimeout bounds each of the two lists of a sweep, callTimeout each
	// deletion.
	listTimeout = time.Minute
	callTimeout = time.Minute
)

// Proxies tells which Proxies exist.
type Proxies interface {
	// UIDs returns the UIDs of all Proxies, those that are being deleted
	// included, as the API server knows them now. Anything less is an error.
	UIDs(context.Context) (map[string]bool, error)
}

// Metrics takes the outcome of sweeps.
type Metrics interface {
	// Swept says how a sweep of an account ended: done, failed, partial or
	// refused, and how many orphans it saw and deleted.
	Swept(account, result string, orphans, deleted int)
}

// Config of a Collector.
type Config struct {
	// Installation whose instances are ours.
	Installation string
	// Providers; one of each account is asked.
	Providers []provider.Named
	// Proxies that exist.
	Proxies Proxies
	// Forget makes the engine leave a UID alone, before its instance goes.
	Forget func(uid string)
	// Bucket paces deletes, together with the engine's.
	Bucket *provider.Bucket
	// Interval between sweeps; the first comes after one.
	Interval time.Duration
	// MinAge of an orphan. It must be well above the slowest insert.
	MinAge time.Duration
	// DryRun logs what would be deleted.
	DryRun bool
	// Clock that everything is timed by.
	Clock clock.WithTicker
	// Metrics of sweeps.
	Metrics Metrics
	// Log of sweeps and deletions.
	Log *slog.Logger
}

// Collector sweeps orphans. It lives as long as this process may act; its
// successor looks twice again.
type Collector struct {
	cfg Config
	// suspects are the orphans of the last good sweep, by account and id.
	suspects map[string]map[string]bool
}

// New returns a collector that suspects nobody.
func New(cfg Config) *Collector {
	return &Collector{cfg: cfg, suspects: map[string]map[string]bool{}}
}

// Run sweeps until ctx ends.
func (c *Collector) Run(ctx context.Context) {
	ticker := c.cfg.Clock.NewTicker(c.cfg.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			c.Sweep(ctx)
		}
	}
}

// Sweep looks at every account once.
func (c *Collector) Sweep(ctx context.Context) {
	seen := map[string]bool{}
	for _, named := range c.cfg.Providers {
		account := named.Account()
		if seen[account] || ctx.Err() != nil {
			continue
		}
		seen[account] = true
		result, orphans, deleted := c.account(ctx, named)
		c.cfg.Metrics.Swept(account, result, orphans, deleted)
	}
}

func (c *Collector) account(ctx context.Context, named provider.Named) (result string, found, deleted int) {
	log := c.cfg.Log.With("account", named.Account())
	instances, err := c.instances(ctx, named)
	if err != nil {
		log.Warn("orphan sweep skipped", "err", err)
		return resultOf(err), 0, 0
	}
	alive, err := c.alive(ctx)
	if err != nil {
		log.Warn("orphan sweep skipped: the Proxies could not be listed", "err", err)
		return "failed", 0, 0
	}
	orphans := orphans(instances, alive, c.cfg.Installation, c.cfg.Clock.Now().Add(-c.cfg.MinAge))
	doomed := c.confirmed(named.Account(), orphans)
	if most := breaker(len(instances)); len(doomed) > most {
		log.Error("orphan sweep refused: too many instances would go; are all Proxies there, and is the installation's name its own?",
			"orphans", len(doomed), "most", most, "instances", len(instances))
		return "refused", len(orphans), 0
	}
	for _, vm := range doomed {
		if c.collect(ctx, named, vm, log) {
			deleted++
		}
	}
	return "done", len(orphans), deleted
}
