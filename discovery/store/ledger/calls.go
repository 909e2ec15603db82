package ledger

import (
	"context"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Do makes one call to a store's ledger, under its lock and with its time. A call that
// is durable returns after its changes are.
type Do func(ctx context.Context, durable bool, call func(g *Ledger, now time.Time) error) error

// Calls implements most of lease.Store for stores around a ledger, which embed it.
type Calls struct {
	do             Do
	freed, changed lease.Signal
	revision       uint64 // of the ledger when changed was last closed
}

// NewCalls returns Calls that use do.
func NewCalls(do Do) *Calls { return &Calls{do: do} }

// Freed is closed when a slot may have become free early.
func (c *Calls) Freed() <-chan struct{} { return c.freed.C() }

// Changed is closed when anything in the store changes.
func (c *Calls) Changed() <-chan struct{} { return c.changed.C() }

// NotifyFreed closes Freed.
func (c *Calls) NotifyFreed() { c.freed.Broadcast() }

// NotifyChanged closes Changed if the ledger has changed. The caller holds the lock.
func (c *Calls) NotifyChanged(g *Ledger) {
	if r := g.Revision(); r != c.revision {
		c.revision = r
		c.changed.Broadcast()
	}
}

// Acquire grants a lease on the preferred proxy.
func (c *Calls) Acquire(ctx context.Context, req lease.Request) (l lease.Lease, err error) {
	err = c.do(ctx, true, func(g *Ledger, now time.Time) error { l, err = g.Acquire(now, req); return err })
	return l, err
}

// Renew extends a lease.
func (c *Calls) Renew(ctx context.Context, id string, ttl time.Duration) (l lease.Lease, err error) {
	err = c.do(ctx, true, func(g *Ledger, now time.Time) error { l, err = g.Renew(now, id, ttl); return err })
	if err != nil {
		return lease.Lease{}, err // not l, which may not be durable
	}
	return l, nil
}

// Get returns a usable lease.
func (c *Calls) Get(ctx context.Context, id string) (l lease.Lease, err error) {
	err = c.do(ctx, false, func(g *Ledger, now time.Time) error { l, err = g.Get(now, id); return err })
	return l, err
}

// Release ends a lease. It is idempotent: an unknown id is no error.
func (c *Calls) Release(ctx context.Context, id string) error {
	err := c.do(ctx, true, func(g *Ledger, now time.Time) error { g.Release(now, id); return nil })
	c.NotifyFreed()
	return err
}

// Report starts a cooldown if the result calls for one.
func (c *Calls) Report(ctx context.Context, id string, rep lease.Report) error {
	return c.do(ctx, true, func(g *Ledger, now time.Time) error { return g.Report(now, id, rep) })
}

// Usage counts running leases and lists the cooldowns for all targets.
func (c *Calls) Usage(ctx context.Context) (u lease.Usage, err error) {
	err = c.do(ctx, false, func(g *Ledger, now time.Time) error { u = g.Usage(now); return nil })
	return u, err
}

// List returns one page of the running leases.
func (c *Calls) List(ctx context.Context, q lease.Query) (page lease.Page, err error) {
	err = c.do(ctx, false, func(g *Ledger, now time.Time) error { page = g.List(now, q); return nil })
	return page, err
}

// Cooldowns lists those of a Proxy.
func (c *Calls) Cooldowns(ctx context.Context, proxyUID string) (cooldowns []lease.Cooldown, err error) {
	err = c.do(ctx, false, func(g *Ledger, now time.Time) error { cooldowns = g.Cooldowns(now, proxyUID); return nil })
	return cooldowns, err
}

// EndCooldowns ends cooldowns of a Proxy early.
func (c *Calls) EndCooldowns(ctx context.Context, proxyUID, target string) (ended int, err error) {
	err = c.do(ctx, true, func(g *Ledger, now time.Time) error { ended = g.EndCooldowns(now, proxyUID, target); return nil })
	c.NotifyFreed()
	return ended, err
}
