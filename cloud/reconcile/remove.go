package reconcile

import (
	"context"
	"errors"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// remove reads the instance at p and deletes it if it is still the decided one.
func (a *account) remove(px *proxy, p *place, decided provider.Instance) job {
	return func(ctx context.Context) {
		began := a.opts.Clock.Now()
		vm, err := px.cloud.Get(ctx, p.Ref)
		c := a.confirmRemove(px, p, decided, vm, err, began)
		if c == nil {
			return
		}
		op, err := px.cloud.Delete(ctx, p.Ref, c.requestID)
		a.mu.Lock()
		defer a.mu.Unlock()
		px.busy = false
		a.removed(px, p, c, op, err)
	}
}

// confirmRemove records the fresh read and returns the call to send, nil for none.
func (a *account) confirmRemove(px *proxy, p *place, decided, vm provider.Instance, err error, began time.Time) *call {
	a.mu.Lock()
	defer a.mu.Unlock()
	there := a.checked(px, p, vm, err, began)
	if !there || vm.ID != decided.ID || vm.SpecHash != decided.SpecHash || vm.Leaving || !px.mustDelete(p) {
		px.busy = false
		if err != nil && !errors.Is(err, provider.ErrNotFound) {
			px.notBefore = p.checkAt
		}
		return nil
	}
	now := a.opts.Clock.Now()
	if p.remove == nil {
		p.remove = &call{requestID: a.opts.NewID(), sent: now}
	}
	p.since = now
	if px.req.Replace != "" && vm.ID == px.req.Replace {
		px.replaced = true
	}
	a.log.Info("deleting instance", px.logKeys(p, "instanceID", vm.ID, "status", vm.Status, "why", px.deleteReason(vm))...)
	return p.remove
}

// deleteReason is why an instance is deleted, for the log.
func (px *proxy) deleteReason(vm provider.Instance) string {
	switch {
	case px.deleted:
		return "deleted"
	case vm.ID == px.req.Replace:
		return "replaced"
	case !px.usable(&vm):
		return "stopped"
	}
	return "one too many"
}

// removed records the response to a delete.
func (a *account) removed(px *proxy, p *place, c *call, op provider.Operation, err error) {
	now := a.opts.Clock.Now()
	switch {
	case err == nil:
		a.rateLimits = 0
		c.op, c.pollAt = op, now.Add(pollFirst)
		if op.Done {
			a.removeEnded(px, p, op.Err, now)
		}
	case errors.Is(err, provider.ErrNotFound):
		p.remove, p.stale, p.checkAt = nil, true, now.Add(confirmGap)
	default:
		if !provider.MayHaveTakenEffect(err) {
			p.remove = nil
		}
		a.removeFailed(px, p, err, now)
	}
}

// removeEnded records the outcome of an accepted delete's operation. Only reads
// confirm that the instance is absent.
func (a *account) removeEnded(px *proxy, p *place, err error, now time.Time) {
	p.remove, p.stale, p.checkAt = nil, true, now
	if err != nil && !errors.Is(err, provider.ErrNotFound) {
		a.removeFailed(px, p, err, now)
		return
	}
	px.attempts, px.failure = nil, nil
}

// removeFailed records why a delete failed. Deletes are retried for ever with
// backoff, also of an instance with deletion protection.
func (a *account) removeFailed(px *proxy, p *place, err error, now time.Time) {
	a.log.Warn("delete failed", px.logKeys(p, "result", provider.Result(err), "err", err)...)
	class, first, most := retriedClass(err), retryFirst, retryMost
	if class == adapter.FailureRefused {
		first, most = refusedFirst, removeMost
	}
	px.failure = &failure{class: class, message: err.Error(), until: a.backOff(px, err, now, first, most)}
}
