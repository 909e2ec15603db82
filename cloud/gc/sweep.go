package gc

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

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
	log = log.With("provider", named.Name, "providerID", named.ProviderID(vm.Ref), "instanceID", vm.ID, "uid", vm.UID)
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
