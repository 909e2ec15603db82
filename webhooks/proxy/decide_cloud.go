package proxy

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// adapterUnavailable: the state of the VM is unknown. Everything stays as the
// status has it, except for the prober's verdict. Only a Proxy without an
// instance shows the block reason.
func adapterUnavailable(o *Observation) Decision {
	in, before := o.Instance, o.previous(v1alpha1.ConditionProvisioned)
	d := Decision{Instance: KeepInstance, KeepStrays: true, ResyncAfter: o.Timing.ProvisioningPoll}
	if in.serves() {
		provisioned := condition{metav1.ConditionTrue, v1alpha1.ReasonCreated, runningMessage}
		if o.outdated() {
			provisioned = condition{metav1.ConditionTrue, v1alpha1.ReasonReplacementPending, "the spec has changed; the instance serves on as it is until the cloud adapter answers"}
		}
		d.Status = o.serving(in, provisioned, o.instanceHash(o.Wanted.Hash))
		d.Probe, d.ResyncAfter = o.probeOf(in), o.Timing.DriftPoll
		return d
	}
	provisioned, hash := condition{metav1.ConditionFalse, o.Adapter.Blocked.Reason, o.Adapter.Blocked.Message}, o.carriedHash()
	if in.ID != "" && before.Reason != "" {
		provisioned, hash = condition{before.Status, before.Reason, before.Message}, o.instanceHash(hash)
	}
	d.Status, d.Probe = o.idle(provisioned, hash), o.observedProbe()
	return d
}

// latched: the cloud refused this instance permanently. The adapter receives no
// request until the spec or the user data changes.
func latched(o *Observation) Decision {
	before := o.previous(v1alpha1.ConditionProvisioned)
	return Decision{
		Status:   o.idle(condition{metav1.ConditionFalse, before.Reason, before.Message}, o.Wanted.Hash),
		Instance: KeepInstance, KeepStrays: true, Probe: o.observedProbe(), ResyncAfter: o.Timing.DriftPoll,
	}
}

// insertFailure is why the cloud does not create the missing VM, and when to
// resync; false when the VM is being created. A failure lasts while a retry is in
// flight, which has no id yet. A transient failure is no reason of its own.
func (o *Observation) insertFailure() (provisioned condition, poll time.Duration, failed bool) {
	f := o.Adapter.Failure
	if f == nil || o.Instance.ID != "" {
		return condition{}, 0, false
	}
	message := Truncate(f.Message)
	switch reason := retried[f.Class]; {
	case reason != "":
		return condition{metav1.ConditionFalse, reason, message + retryNote}, o.shortagePoll(), true
	case f.Class == adapter.FailurePermanent && !o.Instance.Exists():
		return condition{metav1.ConditionFalse, v1alpha1.ReasonPermanentError, message + latchNote}, o.Timing.DriftPoll, true
	}
	return condition{}, 0, false
}

// retried are the reasons of failures that the adapter retries and an operator may end.
var retried = map[adapter.FailureClass]string{
	adapter.FailureQuotaExceeded: v1alpha1.ReasonQuotaExceeded,
	adapter.FailureStockout:      v1alpha1.ReasonStockout,
	adapter.FailureRefused:       v1alpha1.ReasonCloudRefused,
}

const (
	latchNote = "; not retried before the spec or the user data changes"
	retryNote = "; retried with backoff"
)

// shortagePoll is when to resync during a shortage: after the adapter's next
// retry, if that is soon.
func (o *Observation) shortagePoll() time.Duration {
	next := time.Duration(o.Adapter.Failure.RetryAfterSeconds) * time.Second
	if next <= 0 || next > o.Timing.QuotaRetry {
		return o.Timing.QuotaRetry
	}
	return min(next+o.Timing.ProvisioningPoll, o.Timing.QuotaRetry)
}

// withFailure adds the cloud's error to a message. A permanent failure is not retried.
func (o *Observation) withFailure(message string) string {
	f := o.Adapter.Failure
	if f == nil || f.Message == "" {
		return message
	}
	message += "; the cloud reports: " + Truncate(f.Message)
	if f.Class == adapter.FailurePermanent {
		return message
	}
	return message + retryNote
}
