package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// listMost bounds the backoff of lists that fail.
const listMost = time.Minute

// list reads the whole account.
func (a *account) list(ctx context.Context) {
	began := a.opts.Clock.Now()
	listing, err := a.cloud().List(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listing, a.listErr = false, err
	if err != nil {
		a.listFailures++
		a.nextList = later(a.nextList, began.Add(backoff(a.opts.ListInterval, max(listMost, a.opts.ListInterval), a.listFailures)))
		if errors.Is(err, provider.ErrRateLimited) {
			a.nextList = later(a.nextList, a.opts.Clock.Now().Add(2*rateFirst))
		}
		a.log.Warn("list failed", "result", provider.Result(err), "err", err)
		return
	}
	a.listFailures = 0
	if !a.snapshot.listed() {
		a.log.Info("account listed for the first time", "instances", len(listing.Instances), "unreachable", listing.Unreachable)
	}
	a.observeList(&listing, began)
}

// check reads one instance.
func (a *account) check(px *proxy, p *place) job {
	return func(ctx context.Context) {
		began := a.opts.Clock.Now()
		vm, err := px.cloud.Get(ctx, p.Ref)
		a.mu.Lock()
		defer a.mu.Unlock()
		px.busy = false
		a.checked(px, p, vm, err, began)
	}
}

// checked records the response to a read of p that began at. It reports whether
// the Proxy's instance is there.
func (a *account) checked(px *proxy, p *place, vm provider.Instance, err error, began time.Time) bool {
	now := a.opts.Clock.Now()
	if err == nil || errors.Is(err, provider.ErrNotFound) {
		p.unread, p.checks = nil, 0
	}
	switch {
	case err == nil && vm.UID == px.uid:
		px.observePresent(p, vm, began, true)
		return true
	case err == nil && !px.deleted && !px.latched():
		px.failure = nameTaken(p, vm, px.notBefore)
	case err != nil && !errors.Is(err, provider.ErrNotFound):
		p.checks++
		p.checkAt = now.Add(backoff(retryFirst, retryMost, p.checks))
		p.unread = readFailure(err, p.checkAt)
		a.log.Warn("read failed", px.logKeys(p, "result", provider.Result(err), "err", err)...)
		return false
	}
	px.observeAbsent(p, began, true)
	p.checkAt = later(now.Add(confirmGap), p.lateUntil.Add(time.Millisecond))
	if px.insertInFlight(p) {
		p.checkAt = later(p.checkAt, now.Add(pollMost))
	}
	return false
}

// readFailure is why the state of an instance is not known.
func readFailure(err error, until time.Time) *failure {
	return &failure{class: retriedClass(err), message: err.Error(), until: until}
}

// retriedClass is the class of a call that is retried whatever its error is.
func retriedClass(err error) adapter.FailureClass {
	if errors.Is(err, provider.ErrRefused) || errors.Is(err, provider.ErrPermanent) {
		return adapter.FailureRefused
	}
	return adapter.FailureTransient
}

// nameTaken is the failure when an instance of the name exists that is not ours. It
// ends when that one is deleted, so it is retried.
func nameTaken(p *place, vm provider.Instance, until time.Time) *failure {
	return &failure{
		class: adapter.FailureRefused, until: until,
		message: fmt.Sprintf("the name %s in zone %s is taken by an instance (id %s) that does not carry this Proxy's UID; delete it or use another zone", p.Name, p.Zone, vm.ID),
	}
}

// poll reads the operation of a call.
func (a *account) poll(px *proxy, p *place, c *call) job {
	return func(ctx context.Context) {
		op, err := px.cloud.Operation(ctx, c.op.Zone, c.op.Name)
		a.mu.Lock()
		defer a.mu.Unlock()
		px.busy = false
		now := a.opts.Clock.Now()
		if err == nil {
			p.unread, c.pollFailures = nil, 0
		}
		switch {
		case errors.Is(err, provider.ErrNotFound), now.Sub(c.sent) > operationTimeout:
			a.operationLost(px, p, c, now)
		case err != nil:
			c.pollFailures++
			c.pollAt = now.Add(backoff(pollFirst, retryMost, c.pollFailures))
			p.unread = readFailure(err, c.pollAt)
			a.log.Warn("poll of an operation failed", px.logKeys(p, "operation", c.op.Name, "result", provider.Result(err), "err", err)...)
		case !op.Done:
			c.polls++
			c.pollAt = now.Add(backoff(pollFirst, pollMost, c.polls+1))
		case c == p.insert:
			c.op = op
			a.insertEnded(px, p, c, op.Err, now)
		case c == p.remove:
			a.removeEnded(px, p, op.Err, now)
		}
	}
}

// operationLost stops polling an operation that is unknown or timed out. The
// instance is read instead.
func (a *account) operationLost(px *proxy, p *place, c *call, now time.Time) {
	a.log.Warn("operation is no longer polled", px.logKeys(p, "operation", c.op.Name)...)
	if c == p.insert {
		p.insert = nil
	}
	if c == p.remove {
		p.remove = nil
	}
	p.stale, p.checkAt = true, now
}
