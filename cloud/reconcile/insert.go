package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// Paces of polling operations: quick at first, since most end within seconds.
const (
	pollFirst = 3 * time.Second
	pollMost  = 15 * time.Second
	// retryFirst and retryMost bound the back-off after transient failures.
	retryFirst = 2 * time.Second
	retryMost  = 5 * time.Minute
	// rateFirst and rateMost bound the pause after a rate limit, which clouds
	// refill by the minute.
	rateFirst = 15 * time.Second
	rateMost  = 2 * time.Minute
	// insertRetryTimeout is how long a call is repeated. Compute does not say for
	// how long it knows request ids; other Google APIs say at least an hour.
	insertRetryTimeout = 30 * time.Minute
	// removeRetry is the pace of deletes that are refused for good reasons,
	// such as a deletion protection that somebody may lift.
	removeRetry = time.Minute
)

// prepareInsert notes that an insert is about to be sent: from here on an
// instance may be there.
func (a *account) prepareInsert(e *proxy, s step, now time.Time) *place {
	p := s.place
	e.lagRuledOut = true // that there was none, and what will be is ours
	if p == nil {
		p = e.at(provider.Ref{Zone: s.zone, Name: e.name})
		p.insert = &call{
			requestID: a.opts.NewID(),
			request:   provider.InsertRequest{Ref: p.Ref, Installation: a.opts.Installation, Want: e.req},
			sent:      now,
		}
		p.insert.request.RequestID = p.insert.requestID
		a.gates.startTrial(gateKey{s.zone, e.req.Placement.MachineType}, e.uid, now)
	}
	p.since, p.insert.last = now, now
	p.lateUntil = now.Add(a.opts.CallTimeout + settle)
	p.insert.sends++
	return p
}

// insert sends c.
func (a *account) insert(e *proxy, p *place, c *call) job {
	return func(ctx context.Context) {
		op, err := e.cloud.Insert(ctx, c.request)
		a.mu.Lock()
		defer a.mu.Unlock()
		e.busy = false
		now := a.opts.Clock.Now()
		if err != nil {
			a.insertFailed(e, p, c, err, now)
			return
		}
		a.limited = 0
		p.lateUntil = time.Time{}
		a.log.Info("insert accepted", e.logKeys(p, "operation", op.Name)...)
		c.op, c.pollAt = op, now.Add(pollFirst)
		if op.Done {
			a.insertEnded(e, p, c, op.Err, now)
		}
	}
}

// insertFailed takes in that an insert was not accepted, as far as is known.
func (a *account) insertFailed(e *proxy, p *place, c *call, err error, now time.Time) {
	a.log.Warn("insert failed", e.logKeys(p, "result", provider.Result(err), "err", err)...)
	seenSince := p.vm != nil && p.since.After(c.last)
	p.lateUntil = now.Add(settle)
	p.checkAt = p.lateUntil.Add(time.Millisecond)
	switch {
	case errors.Is(err, provider.ErrAlreadyExists):
		p.insert, p.stale, p.checkAt, p.lateUntil = nil, true, now, time.Time{}
		return
	case seenSince:
		p.insert = nil // it did arrive
	case provider.MayHaveTakenEffect(err) && now.Sub(c.sent) < insertRetryTimeout:
		// Keep the call, to be repeated or looked after.
	case provider.MayHaveTakenEffect(err):
		p.insert, p.stale = nil, true // only the instance itself tells
	case c.sends == 1:
		delete(e.places, p.Ref) // never accepted, so nothing is there
	case retryable(err):
		// An earlier sending may have arrived: the repeat will tell.
	default:
		p.insert, p.stale = nil, true
	}
	a.failed(e, c, err, now)
}

// retryable reports whether the very same call may be sent again later.
func retryable(err error) bool {
	class := provider.Class(err)
	return errors.Is(class, provider.ErrTransient) || errors.Is(class, provider.ErrRateLimited) || errors.Is(class, provider.ErrNotWriter)
}

// insertEnded takes in how the operation of an accepted insert ended.
func (a *account) insertEnded(e *proxy, p *place, c *call, err error, now time.Time) {
	p.insert = nil
	if p.vm == nil || err != nil {
		p.stale, p.checkAt = true, now
	}
	p.since = later(p.since, c.last)
	if err != nil {
		a.log.Warn("insert ended with an error", e.logKeys(p, "result", provider.Result(err), "err", err)...)
		if !errors.Is(err, provider.ErrAlreadyExists) {
			a.failed(e, c, err, now)
		}
		return
	}
	a.log.Info("instance made", e.logKeys(p, "instanceID", c.op.TargetID)...)
	delete(a.gates, gateKey{p.Zone, c.request.Want.Placement.MachineType})
	a.opts.Metrics.Made(e.provider, e.madeAgain(now))
	e.failure, e.attempts, e.notBefore = nil, 0, time.Time{}
}

// madeAgain notes that an instance was made and returns why: new, replaced or
// lost.
func (e *proxy) madeAgain(now time.Time) string {
	reason := "lost"
	switch {
	case e.madeAt.IsZero():
		reason = "new"
	case e.replaced:
		reason = "replaced"
	}
	if reason == "lost" && now.Sub(e.madeAt) < recreateQuiet {
		e.losses++
	} else {
		e.losses = 0
	}
	e.madeAt, e.replaced = now, false
	return reason
}

// failed decides what a failed insert means for the proxy and for its zone.
func (a *account) failed(e *proxy, c *call, err error, now time.Time) {
	key := gateKey{c.request.Zone, c.request.Want.Placement.MachineType}
	f := &failure{class: provider.FailureClass(err), message: err.Error()}
	switch class := provider.Class(err); {
	case errors.Is(class, provider.ErrPermanent):
		if !sameWant(c.request.Want, e.req) {
			e.failure = nil // what is wanted by now was not tried yet
			return
		}
		f.latched = true
	case errors.Is(class, provider.ErrQuotaExceeded):
		f.until = a.gates.quota(key, f.message, now, a.opts.QuotaRetry)
	case errors.Is(class, provider.ErrStockout):
		a.gates.stockout(key, f.message, now)
		if c := a.gates.choose(e.uid, zones(e.req), e.req.Placement.MachineType, now); c.failure != nil {
			f = c.failure
		} else {
			f.until = now // another zone is next
		}
	default:
		f.until = a.backOff(e, err, now)
	}
	e.failure = f
}

// backOff holds back the proxy's next mutation, and the whole account's after a
// rate limit. It returns until when.
func (a *account) backOff(e *proxy, err error, now time.Time) time.Time {
	if errors.Is(err, provider.ErrRateLimited) {
		a.limited++
		a.pausedUntil = later(a.pausedUntil, now.Add(backoff(rateFirst, rateMost, a.limited)))
		return a.pausedUntil
	}
	e.attempts++
	e.notBefore = now.Add(backoff(retryFirst, retryMost, e.attempts))
	return e.notBefore
}

// sameWant reports whether two requests ask for the same instance, so that what
// failed for one will fail for the other.
func sameWant(a, b adapter.PutRequest) bool {
	return a.SpecHash == b.SpecHash && a.Generation == b.Generation
}

// foreign is the failure of a name that somebody else's instance has.
func foreign(p *place, vm provider.Instance) *failure {
	return &failure{
		class: adapter.FailurePermanent, latched: true,
		message: fmt.Sprintf("the name %s in zone %s is taken by an instance (id %s) that does not carry this Proxy's UID; delete it or use another zone", p.Name, p.Zone, vm.ID),
	}
}

func (e *proxy) logKeys(p *place, more ...any) []any {
	keys := []any{"provider", e.provider, "instance", e.name, "zone", p.Zone, "uid", e.uid}
	if e.req.Proxy != "" {
		keys = append(keys, "proxy", e.req.Proxy, "namespace", e.req.Namespace)
	}
	return append(keys, more...)
}
