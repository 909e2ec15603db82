package reconcile

import (
	"context"
	"errors"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// list reads the whole account.
func (a *account) list(ctx context.Context) {
	began := a.opts.Clock.Now()
	listing, err := a.cloud().List(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listing = false
	if err != nil {
		a.listErr = err
		if errors.Is(err, provider.ErrRateLimited) {
			a.nextList = later(a.nextList, a.opts.Clock.Now().Add(2*rateFirst))
		}
		a.log.Warn("list failed", "result", provider.Result(err), "err", err)
		return
	}
	if !a.snapshot.listed() {
		a.log.Info("account listed for the first time", "instances", len(listing.Instances), "unreachable", listing.Unreachable)
	}
	a.listErr = nil
	a.observeList(&listing, began)
}

// check reads one instance.
func (a *account) check(e *proxy, p *place) job {
	return func(ctx context.Context) {
		began := a.opts.Clock.Now()
		vm, err := e.cloud.Get(ctx, p.Ref)
		a.mu.Lock()
		defer a.mu.Unlock()
		e.busy = false
		a.checked(e, p, vm, err, began)
	}
}

// checked takes in the answer to a read of p that began at. It reports whether
// the proxy's instance is there.
func (a *account) checked(e *proxy, p *place, vm provider.Instance, err error, began time.Time) bool {
	now := a.opts.Clock.Now()
	switch {
	case err == nil && vm.UID == e.uid:
		e.observePresent(p, vm, began, true)
		return true
	case err == nil:
		if !e.deleted {
			e.failure = foreign(p, vm)
		}
		e.observeAbsent(p, began, true)
	case errors.Is(err, provider.ErrNotFound):
		e.observeAbsent(p, began, true)
	default:
		p.checks++
		p.checkAt = now.Add(backoff(retryFirst, retryMost, p.checks))
		e.failure = &failure{class: adapter.FailureTransient, message: err.Error(), until: p.checkAt}
		a.log.Warn("read failed", e.logKeys(p, "result", provider.Result(err), "err", err)...)
		return false
	}
	p.checkAt = later(now.Add(confirmGap), p.lateUntil.Add(time.Millisecond))
	if e.insertInFlight(p) {
		p.checkAt = later(p.checkAt, now.Add(pollMost))
	}
	return false
}

// poll reads the operation of a call.
func (a *account) poll(e *proxy, p *place, c *call) job {
	return func(ctx context.Context) {
		op, err := e.cloud.Operation(ctx, c.op.Zone, c.op.Name)
		a.mu.Lock()
		defer a.mu.Unlock()
		e.busy = false
		now := a.opts.Clock.Now()
		switch {
		case errors.Is(err, provider.ErrNotFound), now.Sub(c.sent) > operationTimeout:
			a.lost(e, p, c, now)
		case err != nil || !op.Done:
			c.polls++
			c.pollAt = now.Add(backoff(pollFirst, pollMost, c.polls+1))
		case c == p.insert:
			c.op = op
			a.insertEnded(e, p, c, op.Err, now)
		case c == p.remove:
			a.removeEnded(e, p, op.Err, now)
		}
	}
}

// lost takes in that the provider no longer knows an operation, or that it has
// been followed for long enough: only the instance itself tells.
func (a *account) lost(e *proxy, p *place, c *call, now time.Time) {
	a.log.Warn("operation is not followed any longer", e.logKeys(p, "operation", c.op.Name)...)
	if c == p.insert {
		p.insert = nil
	}
	if c == p.remove {
		p.remove = nil
	}
	p.stale, p.checkAt = true, now
}
