package reconcile

import (
	"context"
	"errors"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

const (
	// pollFirst and pollMost bound the poll interval of an operation. It backs off,
	// since most operations end within seconds.
	pollFirst  = 3 * time.Second
	pollMost   = 15 * time.Second
	retryFirst = 2 * time.Second // retryFirst and retryMost bound the backoff after transient failures
	retryMost  = 5 * time.Minute
	// refusedFirst and refusedMost bound the backoff after a refusal that a person has to
	// end: a permission, a policy, a taken name, an unknown code.
	refusedFirst = time.Minute
	refusedMost  = 4 * time.Hour
	// rateFirst and rateMost bound the backoff after a rate limit, whose quota clouds
	// refill by the minute.
	rateFirst = 15 * time.Second
	rateMost  = 2 * time.Minute
	// insertRetryTimeout is how long a call is retried with its request id. Compute
	// does not document how long it keeps them; other Google APIs keep them for an
	// hour.
	insertRetryTimeout = 30 * time.Minute
	// removeMost bounds the backoff of refused deletes, such as those of a protected
	// instance: an unwanted instance costs money.
	removeMost = 30 * time.Minute
)

// prepareInsert adds the place of an insert that is about to be sent: from now on
// an instance may be there.
func (a *account) prepareInsert(px *proxy, s step, now time.Time) *place {
	p := s.place
	px.lagRuledOut = true // there was none, and the next one is this insert's
	if p == nil {
		p = px.at(provider.Ref{Zone: s.zone, Name: px.name})
		id := a.opts.NewID()
		p.insert = &call{requestID: id, sent: now, request: provider.InsertRequest{
			Ref: p.Ref, RequestID: id, Installation: a.opts.Installation, Want: px.req,
		}}
		a.gates.startTrial(gateKey{s.zone, px.req.Placement.MachineType}, px.uid, now)
	}
	p.since, p.insert.last = now, now
	p.lateUntil = now.Add(a.opts.CallTimeout + lateArrival)
	p.insert.sends++
	return p
}

// insert sends c.
func (a *account) insert(px *proxy, p *place, c *call) job {
	return func(ctx context.Context) {
		op, err := px.cloud.Insert(ctx, c.request)
		a.mu.Lock()
		defer a.mu.Unlock()
		px.busy = false
		now := a.opts.Clock.Now()
		if err != nil {
			a.insertFailed(px, p, c, err, now)
			return
		}
		a.rateLimits = 0
		p.lateUntil = time.Time{}
		a.log.Info("insert accepted", px.logKeys(p, "operation", op.Name)...)
		c.op, c.pollAt = op, now.Add(pollFirst)
		if op.Done {
			a.insertEnded(px, p, c, op.Err, now)
		}
	}
}

// insertFailed records an error of the insert call. The insert may have taken
// effect all the same.
func (a *account) insertFailed(px *proxy, p *place, c *call, err error, now time.Time) {
	a.log.Warn("insert failed", px.logKeys(p, "result", provider.Result(err), "err", err)...)
	p.lateUntil = now.Add(lateArrival)
	p.checkAt = p.lateUntil.Add(time.Millisecond)
	unsure := provider.MayHaveTakenEffect(err)
	switch {
	case errors.Is(err, provider.ErrAlreadyExists):
		p.insert, p.stale, p.checkAt, p.lateUntil = nil, true, now, time.Time{}
	case p.vm != nil && p.since.After(c.last):
		p.insert = nil // it took effect: its instance was observed meanwhile
	case unsure && now.Sub(c.sent) < insertRetryTimeout:
		// Keep the call for a retry.
	case !unsure && c.sends == 1:
		delete(px.places, p.Ref) // never accepted, so no instance is there
	case !unsure && retryable(err):
		// An earlier request may have taken effect; the retry returns its outcome.
	default:
		p.insert, p.stale = nil, true // only a read of the instance can decide
	}
	a.failed(px, c, err, now)
}

// retryable reports whether the same call may succeed later.
func retryable(err error) bool {
	class := provider.Class(err)
	return errors.Is(class, provider.ErrTransient) || errors.Is(class, provider.ErrRateLimited) || errors.Is(class, provider.ErrNotWriter)
}

// insertEnded records the outcome of an accepted insert's operation.
func (a *account) insertEnded(px *proxy, p *place, c *call, err error, now time.Time) {
	p.insert = nil
	if p.vm == nil || err != nil {
		p.stale, p.checkAt = true, now
	}
	p.since = later(p.since, c.last)
	if err != nil {
		a.log.Warn("insert operation failed", px.logKeys(p, "result", provider.Result(err), "err", err)...)
		a.failed(px, c, err, now)
		return
	}
	a.log.Info("instance made", px.logKeys(p, "instanceID", c.op.TargetID)...)
	delete(a.gates, gateKey{p.Zone, c.request.Want.Placement.MachineType})
	a.opts.Made(px.provider, px.recordMade(now))
	px.resetBackoff()
}

// recordMade records that an instance was made and returns the reason: new,
// replaced or lost.
func (px *proxy) recordMade(now time.Time) string {
	reason := "lost"
	switch {
	case px.madeAt.IsZero():
		reason = "new"
	case px.replaced:
		reason = "replaced"
	}
	if reason == "lost" && now.Sub(px.madeAt) < recreateQuiet {
		px.losses++
	} else {
		px.losses = 0
	}
	px.madeAt, px.replaced = now, false
	return reason
}

// failed records why an insert failed, for the Proxy and for its zone.
func (a *account) failed(px *proxy, c *call, err error, now time.Time) {
	key := gateKey{c.request.Zone, c.request.Want.Placement.MachineType}
	f := &failure{class: provider.FailureClass(err), message: err.Error()}
	switch class := provider.Class(err); {
	case errors.Is(class, provider.ErrPermanent):
		if !sameSpec(c.request.Want, px.req) {
			px.failure = nil // the current spec was not tried yet
			return
		}
		f.latched = true
	case errors.Is(class, provider.ErrQuotaExceeded):
		f.until = a.gates.quota(key, f.message, now, a.opts.QuotaRetry)
	case errors.Is(class, provider.ErrStockout):
		a.gates.stockout(key, f.message, now)
		if _, short := a.gates.choose(px.uid, zones(px.req), px.req.Placement.MachineType, now); short != nil {
			f = short
		} else {
			f.until = now // in the next zone
		}
	case errors.Is(class, provider.ErrAlreadyExists):
		f.conflict = !c.accepted()
		f.message += "; if this is no instance of the Proxy, delete the resource that the cloud names, or use another zone"
		f.until = a.backOff(px, err, now, retryFirst, refusedMost)
	case errors.Is(class, provider.ErrRefused):
		f.until = a.backOff(px, err, now, refusedFirst, refusedMost)
	default:
		f.until = a.backOff(px, err, now, retryFirst, retryMost)
	}
	px.failure = f
}

// backOff delays the Proxy's next mutation, or after a rate limit those of the
// whole account, and returns until when. Each schedule counts its own failures: the
// first refusal after many transient errors waits for a minute, not for hours. Delays
// beyond a minute have jitter.
func (a *account) backOff(px *proxy, err error, now time.Time, first, most time.Duration) time.Time {
	if errors.Is(err, provider.ErrRateLimited) {
		a.rateLimits++
		a.pausedUntil = later(a.pausedUntil, now.Add(backoff(rateFirst, rateMost, a.rateLimits)))
		return a.pausedUntil
	}
	if px.attempts == nil {
		px.attempts = map[schedule]int{}
	}
	s := schedule{first, most}
	px.attempts[s]++
	delay := backoff(first, most, px.attempts[s])
	if delay > refusedFirst {
		delay = jitter(delay, px.uid, px.attempts[s])
	}
	px.notBefore = now.Add(delay)
	return px.notBefore
}

// sameSpec reports whether two requests are for the same instance, so that a
// permanent failure of one applies to the other.
func sameSpec(a, b adapter.PutRequest) bool {
	return a.SpecHash == b.SpecHash && a.Generation == b.Generation
}
