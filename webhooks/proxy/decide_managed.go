package proxy

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// comingUp: there is no instance yet, or one that does not serve yet.
func comingUp(o *Observation) Decision {
	provisioned := condition{metav1.ConditionFalse, v1alpha1.ReasonProvisioning, o.waitMessage()}
	poll := o.Timing.ProvisioningPoll
	if before := o.previous(v1alpha1.ConditionProvisioned); before.Reason == v1alpha1.ReasonInstanceFailing && !o.Instance.Exists() && !o.Provider.IsCloud() {
		provisioned, poll = condition{before.Status, before.Reason, o.withMissingPod(before.Message)}, o.Timing.DriftPoll
	} else if c, later, failed := o.insertFailure(); failed {
		provisioned, poll = c, later
	} else if o.pastDeadline() {
		provisioned = condition{metav1.ConditionFalse, v1alpha1.ReasonProvisioningTimeout, o.timeoutMessage()}
		poll = o.Timing.DriftPoll
	}
	return Decision{Status: o.idle(provisioned, o.Wanted.Hash), Instance: MakeInstance, SpecHash: o.Wanted.Hash, ResyncAfter: poll}
}

// withMissingPod adds to the message about a Pod that ended that the next one was
// requested and does not exist. An id in the status shows the answer that requests it.
func (o *Observation) withMissingPod(message string) string {
	note := "; no Pod exists since: if that stays so, " + o.quotaHint()
	if o.Proxy.Status.InstanceID != "" || strings.HasSuffix(message, note) {
		return message
	}
	return message + note
}

// quotaHint names what may keep Metacontroller from creating a Pod.
func (o *Observation) quotaHint() string {
	return "look at this Proxy's events, and for quotas and admission policies in namespace " + o.Proxy.Namespace
}

// pastDeadline reports whether provisioning has timed out. Without an instance
// the time counts from the first request for one. A Provisioned condition that
// is False for another reason is from before that request and does not count.
func (o *Observation) pastDeadline() bool {
	start := o.Instance.CreatedAt
	if !o.Instance.Exists() || start.IsZero() {
		p := o.previous(v1alpha1.ConditionProvisioned)
		if p.Reason != v1alpha1.ReasonProvisioning && p.Reason != v1alpha1.ReasonProvisioningTimeout {
			return false
		}
		start = p.LastTransitionTime.Time
	}
	return !start.IsZero() && o.Now.Sub(start) > o.Timing.ProvisioningDeadline
}

func (o *Observation) waitMessage() string {
	switch {
	case !o.Instance.Exists():
		return o.withFailure("the instance is being created")
	case o.Instance.Waiting != "":
		return "waiting for the instance to run: " + o.Instance.Waiting
	}
	return o.withFailure("waiting for the instance to run")
}

func (o *Observation) timeoutMessage() string {
	deadline, ns, name := o.Timing.ProvisioningDeadline, o.Proxy.Namespace, v1alpha1.InstanceName(o.Proxy.UID)
	switch exists := o.Instance.Exists(); {
	case o.Provider.IsCloud() && !exists:
		return o.withFailure(fmt.Sprintf("no instance %s after the request for it; see the cloud adapter's log", deadline))
	case o.Provider.IsCloud():
		return o.withFailure(fmt.Sprintf("the instance does not run %s after its creation; look at %s at the provider", deadline, cmp.Or(o.Instance.ProviderID, name)))
	case !exists:
		return fmt.Sprintf("no instance %s after the request for it: the Pod could not be created; %s", deadline, o.quotaHint())
	case o.Instance.Waiting != "":
		return fmt.Sprintf("the instance does not run %s after its creation: %s; see kubectl describe pod -n %s %s", deadline, o.Instance.Waiting, ns, name)
	}
	return fmt.Sprintf("the instance does not run %s after its creation; see kubectl describe pod -n %s %s", deadline, ns, name)
}

const runningMessage = "the instance is running"

// running: the instance is what the spec asks for. The answer that completes a
// replacement resyncs soon: the budget counts the replacement until the API
// server has the Ready status, and no event reports that write.
func running(o *Observation) Decision {
	d := Decision{
		Status:   o.serving(o.Instance, condition{metav1.ConditionTrue, v1alpha1.ReasonCreated, runningMessage + o.restartNote() + o.credentialsNote()}, o.Wanted.Hash),
		Instance: MakeInstance, SpecHash: o.Wanted.Hash, Probe: o.probeOf(o.Instance), ResyncAfter: o.Timing.DriftPoll,
	}
	if o.InBudget && d.Status.Phase == v1alpha1.PhaseReady && !o.ShownReady() {
		d.ResyncAfter = min(d.ResyncAfter, o.Timing.BudgetPoll)
	}
	return d
}

// restartNote states why a container of a running Pod is not running. The kubelet
// restarts it with backoff.
func (o *Observation) restartNote() string {
	if o.Instance.Waiting == "" {
		return ""
	}
	return ", and its container waits: " + o.Instance.Waiting
}

// ShownReady reports whether the stored status shows the observed instance as
// Ready.
func (o *Observation) ShownReady() bool {
	return o.Proxy.Status.Phase == v1alpha1.PhaseReady && o.Proxy.Status.InstanceID == o.Instance.ID
}

// credentialsNote warns that a Pod does not check passwords.
func (o *Observation) credentialsNote() string {
	if o.Proxy.Spec.CredentialsRef == nil || o.Instance.VM {
		return ""
	}
	return "; Pods do not check the credentials of credentialsRef yet: the NetworkPolicy and the provider's allowClients restrict their clients"
}

// replacementPending: the instance is outdated and serves on while the budget is
// exhausted.
func replacementPending(o *Observation) Decision {
	provisioned := condition{metav1.ConditionTrue, v1alpha1.ReasonReplacementPending, fmt.Sprintf(
		"the spec has changed; the instance serves on as it is until fewer Proxies of provider %s are being replaced (--max-replacing); if it stays so, look for Proxies that did not get Ready after their replacement", o.Proxy.Spec.Provider) + o.credentialsNote()}
	return Decision{
		Status:   o.serving(o.Instance, provisioned, o.instanceHash(o.Wanted.Hash)),
		Instance: KeepInstance, Probe: o.probeOf(o.Instance), ResyncAfter: o.Timing.BudgetPoll,
	}
}

// replacing: the instance is outdated and is removed. Its id and hash stay in the
// status until its deletion is observed: if the delete fails, an adopted instance
// must not be adopted again with the new hash.
func replacing(o *Observation) Decision {
	d := removing(o, condition{metav1.ConditionFalse, v1alpha1.ReasonReplacing, o.withFailure("the spec has changed; waiting for the old instance to go")})
	if o.Instance.VM {
		d.Replace = o.Instance.ID
	}
	return d
}

// terminating: the instance is being deleted, by a replacement or from outside.
// The next one has the same name, so it is listed once this one is gone.
func terminating(o *Observation) Decision {
	provisioned := condition{metav1.ConditionFalse, v1alpha1.ReasonReplacing, o.withFailure("waiting for the old instance to go")}
	switch before := o.previous(v1alpha1.ConditionProvisioned); before.Reason {
	case "", v1alpha1.ReasonProvisioning, v1alpha1.ReasonProvisioningTimeout:
		provisioned.reason = v1alpha1.ReasonProvisioning
	case v1alpha1.ReasonInstanceFailing:
		provisioned.reason, provisioned.message = before.Reason, before.Message
	}
	return removing(o, provisioned)
}

// ended: the instance will not serve again; a new one follows. A Pod stays listed
// until its retry is due, so that a node that refuses it is not asked every second.
func ended(o *Observation) Decision {
	provisioned := condition{metav1.ConditionFalse, v1alpha1.ReasonInstanceTerminated, o.withFailure("the instance has ended" + o.endNote() + "; it is removed and created anew")}
	if o.Instance.VM || o.outdated() {
		return removing(o, provisioned)
	}
	if !o.served() {
		provisioned.reason = v1alpha1.ReasonInstanceFailing
		provisioned.message = fmt.Sprintf("the Pod ended before it served%s; it is removed and retried with backoff; see the events of Pod %s in namespace %s",
			o.endNote(), v1alpha1.InstanceName(o.Proxy.UID), o.Proxy.Namespace)
	}
	wait := o.podBackoff()
	rest := o.Instance.CreatedAt.Add(wait).Sub(o.Now)
	if rest <= 0 {
		return removing(o, provisioned)
	}
	return Decision{Status: o.idle(provisioned, o.instanceHash(o.Wanted.Hash)), Instance: KeepInstance, ResyncAfter: min(rest, wait)}
}

// endNote is the kubelet's reason for the end of a Pod.
func (o *Observation) endNote() string {
	if o.Instance.Ended == "" {
		return ""
	}
	return " (" + o.Instance.Ended + ")"
}

const (
	podRetryFirst = time.Second // podRetryFirst and podRetryMost bound the backoff of Pods that end before they serve
	podRetryMost  = 5 * time.Minute
	// podLifetime is the least time between two Pods that served: one that served for
	// longer is replaced at once.
	podLifetime = time.Minute
)

// served reports whether the ended Pod is in the status as one that served.
func (o *Observation) served() bool {
	before := o.previous(v1alpha1.ConditionProvisioned)
	return o.Proxy.Status.InstanceID == o.Instance.ID &&
		(before.Status == metav1.ConditionTrue || before.Reason == v1alpha1.ReasonInstanceTerminated)
}

// podBackoff is the least time between the creation of an ended Pod and its
// replacement. For a Pod that never served it is as long as the Proxy had been without an
// instance when the Pod was created, so that the waits double. That follows from stored
// times, and survives a restart of the hooks.
func (o *Observation) podBackoff() time.Duration {
	before := o.previous(v1alpha1.ConditionProvisioned)
	switch {
	case o.served():
		return podLifetime
	case before.Status != metav1.ConditionFalse:
		return podRetryFirst
	}
	return min(max(o.Instance.CreatedAt.Sub(before.LastTransitionTime.Time), podRetryFirst), podRetryMost)
}

func removing(o *Observation, provisioned condition) Decision {
	return Decision{Status: o.idle(provisioned, o.instanceHash(o.Wanted.Hash)), Instance: RemoveInstance, ResyncAfter: o.Timing.RemovalPoll}
}

// blockedSpec: the wanted state is unknown, and everything stays as it is.
func blockedSpec(o *Observation, why *BlockReason) Decision {
	d := Decision{Instance: KeepInstance, KeepStrays: true, ResyncAfter: o.Timing.DriftPoll}
	hash := o.instanceHash(o.carriedHash())
	if o.Instance.serves() {
		d.Status = o.serving(o.Instance, condition{metav1.ConditionTrue, why.Reason, why.Message + "; the running instance stays as it is"}, hash)
		d.Probe = o.probeOf(o.Instance)
		return d
	}
	if why.Reason == v1alpha1.ReasonPermanentError && o.Instance.ID == "" {
		hash = "" // this reason does not latch
	}
	d.Status, d.Probe = o.idle(condition{metav1.ConditionFalse, why.Reason, why.Message}, hash), o.observedProbe()
	return d
}
