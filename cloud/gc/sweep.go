package gc

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// breaker is how many of n instances may be deleted in one sweep.
func breaker(n int) int { return max(breakerLeast, int(breakerShare*float64(n))) }

// orphans returns the instances of the installation without a Proxy that are older
// than bornBefore. It is pure.
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

// confirmed returns the orphans that the last successful sweep found as well.
func (c *Collector) confirmed(account string, orphans []provider.Instance) []provider.Instance {
	var out []provider.Instance
	suspects := map[string]bool{}
	for _, vm := range orphans {
		suspects[vm.ID] = true
		if c.suspects[account][vm.ID] && !vm.Leaving {
			out = append(out, vm)
		}
	}
	c.suspects[account] = suspects
	return out
}

// collect reads one orphan again and deletes it.
func (c *Collector) collect(ctx context.Context, named provider.Named, vm provider.Instance, log *slog.Logger) bool {
	log = log.With("provider", named.Name, "providerID", named.ProviderID(vm.Ref), "instanceID", vm.ID, "uid", vm.UID)
	if c.cfg.DryRun {
		log.Warn("orphan would be deleted (--gc-dry-run)", "createdAt", vm.CreatedAt)
		return false
	}
	if !c.throttle(ctx) {
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
		log.Info("orphan not deleted: it changed since the list")
		return false
	}
	c.cfg.Forget(vm.UID)
	log.Warn("deleting orphan: no Proxy has its UID", "createdAt", vm.CreatedAt, "status", fresh.Status)
	if _, err := named.Delete(ctx, vm.Ref, uuid.NewString()); err != nil {
		log.Warn("orphan not deleted; the next sweep retries", "err", err)
		return false
	}
	return true
}

// throttle waits for a token. It returns false when ctx ended first.
func (c *Collector) throttle(ctx context.Context) bool {
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
