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
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
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

// errPartial: the list has gaps.
var errPartial = errors.New("the list of instances is not complete")

func resultOf(err error) string {
	if errors.Is(err, errPartial) {
		return "partial"
	}
	return "failed"
}

func (c *Collector) instances(ctx context.Context, named provider.Named) ([]provider.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	listing, err := named.List(ctx)
	switch {
	case err != nil:
		return nil, err
	case !listing.Complete():
		return nil, errPartial
	}
	return listing.Instances, nil
}

func (c *Collector) alive(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return c.cfg.Proxies.UIDs(ctx)
}

// breaker is how many of n instances may go at once.
func breaker(n int) int { return max(breakerLeast, int(breakerShare*float64(n))) }

// orphans are the instances that nobody owns and that are not too young to say
// so. It is pure.
func orphans(all []provider.Instance, alive map[string]bool, installation string, bornBefore time.Time) []provider.Instance {
	var out []provider.Instance
	for _, vm := range all {
		ours := vm.Installation == installation && vm.UID != "" && vm.ID != ""
		old := !vm.CreatedAt.IsZero() && vm.CreatedAt.Before(bornBefore)
		if ours && old && !alive[vm.UID] {
			out = append(out, vm)
		}
	}
	return out
}

// confirmed are the orphans that were so on the last good sweep as well.
func (c *Collector) confirmed(account string, orphans []provider.Instance) []provider.Instance {
	var out []provider.Instance
	now := map[string]bool{}
	for _, vm := range orphans {
		now[vm.ID] = true
		if c.suspects[account][vm.ID] && !vm.Leaving {
			out = append(out, vm)
		}
	}
	c.suspects[account] = now
	return out
}

// collect deletes one orphan, after a last look at it.
func (c *Collector) collect(ctx context.Context, named provider.Named, vm provider.Instance, log *slog.Logger) bool {
	log = log.With("provider", named.Name, "providerID", named.ProviderID(vm.Ref), "id", vm.ID, "uid", vm.UID)
	if c.cfg.DryRun {
		log.Warn("orphan would be deleted (--gc-dry-run)", "createdAt", vm.CreatedAt)
		return false
	}
	if !c.pace(ctx) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	fresh, err := named.Get(ctx, vm.Ref)
	switch {
	case err != nil:
		log.Warn("orphan not deleted: it could not be read", "err", err)
		return false
	case fresh.ID != vm.ID || fresh.UID != vm.UID || fresh.Installation != vm.Installation || fresh.SpecHash != vm.SpecHash || fresh.Leaving:
		log.Info("orphan not deleted: it is no longer what it was")
		return false
	}
	c.cfg.Forget(vm.UID)
	log.Warn("deleting orphan: no Proxy has its UID", "createdAt", vm.CreatedAt, "status", fresh.Status)
	if _, err := named.Delete(ctx, vm.Ref, uuid.NewString()); err != nil {
		log.Warn("orphan not deleted; the next sweep tries again", "err", err)
		return false
	}
	return true
}

// pace waits for a token. It reports false when ctx ended first.
func (c *Collector) pace(ctx context.Context) bool {
	for {
		delay := c.cfg.Bucket.Take(c.cfg.Clock.Now())
		if delay == 0 {
			return ctx.Err() == nil
		}
		timer := c.cfg.Clock.NewTimer(delay)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}
