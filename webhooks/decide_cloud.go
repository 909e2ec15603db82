package webhooks

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// unreachable: the adapter did not tell what is, so that everything stays as the
// status has it, but for the prober's verdict. Only a Proxy without an instance
// shows the trouble.
func unreachable(o *Observation, hash string) Decision {
	in := o.Instance
	before := o.previous(v1alpha1.ConditionProvisioned)
	d := Decision{Instance: KeepInstance, KeepStrays: true, ResyncAfter: o.Timing.ProvisioningPoll}
	switch {
	case in.serves() && o.outdated(hash):
		d.Status = o.serving(in, condition{metav1.ConditionTrue, v1alpha1.ReasonReplacementPending, "the spec has changed; the instance serves on as it is until the cloud adapter answers"}, o.madeWith(hash))
	case in.serves():
		d.Status = o.serving(in, condition{metav1.ConditionTrue, v1alpha1.ReasonCreated, runningMessage}, o.madeWith(hash))
	case in.ID != "" && before.Reason != "":
		d.Status = o.idle(condition{before.Status, before.Reason, before.Message}, o.madeWith(o.carriedHash()))
	default:
		d.Status = o.idle(condition{metav1.ConditionFalse, o.Cloud.Problem.reason, o.Cloud.Problem.message}, o.carriedHash())
	}
	if in.serves() {
		d.Probe, d.ResyncAfter = o.probeOf(in), o.Timing.DriftPoll
	} else if o.Probe != nil && o.Probe.DeletionTimestamp == nil {
		d.Probe = &o.Probe.Spec
	}
	return d
}

// latched: the cloud has refused this instance for good, and is not asked again
// before the spec or the user data is another one.
func latched(o *Observation, hash string) Decision {
	before := o.previous(v1alpha1.ConditionProvisioned)
	d := Decision{
		Status:   o.idle(condition{metav1.ConditionFalse, before.Reason, before.Message}, hash),
		Instance: KeepInstance, KeepStrays: true, ResyncAfter: o.Timing.DriftPoll,
	}
	if o.Probe != nil && o.Probe.DeletionTimestamp == nil {
		d.Probe = &o.Probe.Spec
	}
	return d
}

// refusal is why the cloud does not make the instance that is missing, and when
// to look again; false when it is on its way. Shortages wait and do not fail.
func (o *Observation) refusal() (provisioned condition, poll time.Duration, refused bool) {
	f := o.Cloud.Failure
	if f == nil || o.Instance.exists() {
		return condition{}, 0, false
	}
	message := short(f.Message)
	switch f.Class {
	case adapter.FailureQuotaExceeded:
		return condition{metav1.ConditionFalse, v1alpha1.ReasonQuotaExceeded, message}, o.shortagePoll(), true
	case adapter.FailureStockout:
		return condition{metav1.ConditionFalse, v1alpha1.ReasonStockout, message}, o.shortagePoll(), true
	case adapter.FailurePermanent:
		return condition{metav1.ConditionFalse, v1alpha1.ReasonPermanentError, message + latchNote}, o.Timing.DriftPoll, true
	}
	return condition{}, 0, false // it is tried again by itself
}

// latchNote tells people how to go on.
const latchNote = "; not tried again before the spec or the user data changes"

// shortagePoll is when to look again at a shortage: after the adapter's next
// try, if that is soon.
func (o *Observation) shortagePoll() time.Duration {
	next := time.Duration(o.Cloud.Failure.RetryAfterSeconds) * time.Second
	if next <= 0 || next > o.Timing.QuotaRetry {
		return o.Timing.QuotaRetry
	}
	return min(next+o.Timing.ProvisioningPoll, o.Timing.QuotaRetry)
}

// withFailure adds what the cloud said to a message.
func (o *Observation) withFailure(message string) string {
	if f := o.Cloud.Failure; f != nil && f.Message != "" {
		return message + "; the cloud says: " + short(f.Message)
	}
	return message
}
