// Package gc deletes orphans: instances whose Proxy no longer exists, as after a
// crash, a removed finalizer or a mistake. It is the only part of the system that
// deletes instances without a request, so that it prefers to keep ten orphans over
// deleting one instance in use.
//
// An instance is deleted only if all of this holds:
//
//   - it carries our installation label and a UID label;
//   - it is older than the minimum age, so that it is not being made;
//   - no Proxy has its UID. One that is being deleted counts as alive, since its
//     finalizer owns that deletion;
//   - the sweep before found the same;
//   - the list of instances had no gap, and the list of Proxies began after it and
//     succeeded;
//   - no more than max(3, 20 %) of the account's instances would be deleted;
//   - a fresh read returns the same instance with the same labels.
package gc

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

const (
	breakerLeast = 3           // breakerLeast instances may always be deleted in one sweep
	breakerShare = 0.2         // of an account's instances may be deleted in one sweep
	callTimeout  = time.Minute // bounds each list and each deletion
)

// Proxies returns which Proxies exist.
type Proxies interface {
	// UIDs returns the UIDs of all Proxies, including those that are being deleted,
	// from the API server and not from a cache. An incomplete list is an error.
	UIDs(context.Context) (map[string]bool, error)
}

// Config of a Collector.
type Config struct {
	Installation string           // Installation whose instances are ours
	Providers    []provider.Named // Providers; one of each account is listed
	Proxies      Proxies          // that exist
	Forget       func(uid string) // makes the reconciler drop a UID before its instance is deleted
	Bucket       *provider.Bucket // throttles deletes, together with the reconciler's mutations
	Interval     time.Duration    // between sweeps; the first one comes after it
	MinAge       time.Duration    // of an orphan. It must be well above the slowest insert
	DryRun       bool             // logs orphans instead of deleting them
	Clock        clock.WithTicker // of all timing
	// Swept counts a sweep of an account by its result (done, failed, partial or
	// refused), with the orphans that it found and deleted.
	Swept func(account, result string, orphans, deleted int)
	Log   *slog.Logger // of sweeps and deletions
}

// Collector sweeps orphans for one term. Its successor has no suspects and needs
// two sweeps again.
type Collector struct {
	cfg      Config
	suspects map[string]map[string]bool // the orphans of the last successful sweep, by account and id
}

// New returns a collector without suspects.
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

// Sweep sweeps every account once.
func (c *Collector) Sweep(ctx context.Context) {
	swept := map[string]bool{}
	for _, named := range c.cfg.Providers {
		account := named.Account()
		if swept[account] || ctx.Err() != nil {
			continue
		}
		swept[account] = true
		result, orphans, deleted := c.account(ctx, named)
		c.cfg.Swept(account, result, orphans, deleted)
	}
}

func (c *Collector) account(ctx context.Context, named provider.Named) (result string, found, deleted int) {
	log := c.cfg.Log.With("account", named.Account())
	listing, err := withTimeout(ctx, named.List)
	switch {
	case err != nil:
		log.Warn("orphan sweep skipped", "err", err)
		return "failed", 0, 0
	case !listing.Complete():
		log.Warn("orphan sweep skipped: the list of instances is not complete", "unreachable", listing.Unreachable)
		return "partial", 0, 0
	}
	alive, err := withTimeout(ctx, c.cfg.Proxies.UIDs)
	if err != nil {
		log.Warn("orphan sweep skipped: the Proxies could not be listed", "err", err)
		return "failed", 0, 0
	}
	orphans := orphans(listing.Instances, alive, c.cfg.Installation, c.cfg.Clock.Now().Add(-c.cfg.MinAge))
	confirmed := c.confirmed(named.Account(), orphans)
	if most := breaker(len(listing.Instances)); len(confirmed) > most {
		log.Error("orphan sweep refused: too many instances would be deleted; are all Proxies there, and is the installation's name its own?",
			"orphans", len(confirmed), "most", most, "instances", len(listing.Instances))
		return "refused", len(orphans), 0
	}
	for _, vm := range confirmed {
		if c.collect(ctx, named, vm, log) {
			deleted++
		}
	}
	return "done", len(orphans), deleted
}

func withTimeout[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx)
}

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

// pageSize of a list of Proxies.
const pageSize = 500

// APIServer lists Proxies from the API server, never from a cache: a Proxy that a
// stale cache does not contain would look like an orphan.
type APIServer struct {
	Client    metadata.Interface // reads the metadata of Proxies
	Namespace string             // to list, empty for all
}

// UIDs returns the UIDs of all Proxies. Without a resource version the API server
// reads all pages from its store at one revision; an expired page fails the whole
// list.
func (a APIServer) UIDs(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	opts := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := a.Client.Resource(v1alpha1.ProxyResource()).Namespace(a.Namespace).List(ctx, opts)
		if err != nil {
			return nil, fmt.Errorf("list Proxies: %w", err)
		}
		for _, p := range page.Items {
			out[string(p.UID)] = true
		}
		if page.Continue == "" {
			return out, nil
		}
		opts.Continue = page.Continue
	}
}
