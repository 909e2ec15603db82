package reconcile

import (
	"context"
	"errors"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// remove reads the instance at p anew and deletes it if it is still the one
// that the decision was about.
func (a *account) remove(e *proxy, p *place, decided provider.Instance) job {
	return func(ctx context.Context) {
		began := a.opts.Clock.Now()
		vm, err := e.cloud.Get(ctx, p.Ref)
		c := a.confirmRemove(e, p, decided, vm, err, began)
		if c == nil {
			return
		}
		op, err := e.cloud.Delete(ctx, p.Ref, c.requestID)
		a.mu.Lock()
		defer a.mu.Unlock()
		e.busy = false
		a.removed(e, p, c, op, err)
	}
}

// confirmRemove takes in the fresh read and returns the call to send, nil for
// none.
func (a *account) confirmRemove(e *proxy, p *place, decided, vm provider.Instance, err error, began time.Time) *call {
	a.mu.Lock()
	defer a.mu.Unlock()
	there := a.checked(e, p, vm, err, began)
	if !there || vm.ID != decided.ID || vm.SpecHash != decided.SpecHash || vm.Leaving || !e.mustDelete(p) {
		e.busy = false
		if err != nil && !errors.Is(err, provider.ErrNotFound) {
			e.notBefore = p.checkAt
		}
		return nil
	}
	now := a.opts.Clock.Now()
	if p.remove == nil {
		p.remove = &call{requestID: a.opts.NewID(), target: vm.ID, sent: now}
	}
	p.since, p.remove.last = now, now
	p.remove.sends++
	if e.req.Replace != "" && vm.ID == e.req.Replace {
		e.replaced = true
	}
	a.log.Info("deleting instance", e.logKeys(p, "instanceID", vm.ID, "status", vm.Status, "why", e.why(vm))...)
	return p.remove
}

// why an instance is deleted, for the log.
func (e *proxy) why(vm provider.Instance) string {
	switch {
	case e.deleted:
		return "deleted"
	case vm.ID == e.req.Replace:
		return "replaced"
	case !e.usable(&vm):
		return "stopped"
	}
	return "one too many"
}

// removed takes in the answer to a delete.
func (a *account) removed(e *proxy, p *place, c *call, op provider.Operation, err error) {
	now := a.opts.Clock.Now()
	switch {
	case err == nil:
		a.limited = 0
		c.op, c.pollAt = op, now.Add(pollFirst)
		e.attempts, e.failure = 0, nil
		if op.Done {
			a.removeEnded(e, p, op.Err, now)
		}
	case errors.Is(err, provider.ErrNotFound):
		p.remove, p.stale, p.checkAt = nil, true, now.Add(confirmGap)
	default:
		if !provider.MayHaveTakenEffect(err) {
			p.remove = nil
		}
		a.removeFailed(e, p, err, now)
	}
}

// removeEnded takes in how the operation of an accepted delete ended. Whether
// the instance is gone only reads tell.
func (a *account) removeEnded(e *proxy, p *place, err error, now time.Time) {
	p.remove, p.stale, p.checkAt = nil, true, now
	if err != nil && !errors.Is(err, provider.ErrNotFound) {
		a.removeFailed(e, p, err, now)
	}
}

// removeFailed notes why a delete failed. Deletion never gives up, so that even a
// refusal, such as one by a deletion protection, is no permanent failure.
func (a *account) removeFailed(e *proxy, p *place, err error, now time.Time) {
	a.log.Warn("delete failed", e.logKeys(p, "result", provider.Result(err), "err", err)...)
	f := &failure{class: adapter.FailureTransient, message: err.Error()}
	if errors.Is(err, provider.ErrPermanent) {
		e.notBefore = now.Add(removeRetry)
		f.until = e.notBefore
	} else {
		f.until = a.backOff(e, err, now)
	}
	e.failure = f
}
