package webhooks

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// comingUp: there is no instance yet, or one that does not serve yet.
func comingUp(o *Observation, hash string) Decision {
	provisioned := condition{metav1.ConditionFalse, v1alpha1.ReasonProvisioning, o.waitMessage()}
	poll := o.Timing.ProvisioningPoll
	if refusal, later, refused := o.refusal(); refused {
		provisioned, poll = refusal, later
	} else if o.late() {
		provisioned = condition{metav1.ConditionFalse, v1alpha1.ReasonProvisioningTimeout, o.lateMessage()}
		poll = o.Timing.DriftPoll
	}
	return Decision{
		Status:      o.idle(provisioned, hash),
		Instance:    MakeInstance,
		SpecHash:    hash,
		ResyncAfter: poll,
	}
}

// late reports whether the instance has been coming up for longer than the
// deadline. Without an instance the clock runs from when one was first asked
// for. A Provisioned condition that is False for another reason dates from
// before that, and does not count.
func (o *Observation) late() bool {
	start := o.Instance.CreatedAt
	if !o.Instance.exists() || start.IsZero() {
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
	case !o.Instance.exists():
		return o.withFailure("the instance is being created")
	case o.Instance.Waiting != "":
		return "waiting for the instance to run: " + o.Instance.Waiting
	}
	return o.withFailure("waiting for the instance to run")
}

func (o *Observation) lateMessage() string {
	deadline := o.Timing.ProvisioningDeadline
	switch {
	case o.Provider.outside() && !o.Instance.exists():
		return o.withFailure(fmt.Sprintf("no instance %s after it was asked for; the cloud adapter's log says more", deadline))
	case o.Provider.outside():
		return o.withFailure(fmt.Sprintf("the instance does not run %s after its creation; look at %s at the provider", deadline, cmp.Or(o.Instance.ProviderID, v1alpha1.InstanceName(o.Proxy.UID))))
	case !o.Instance.exists():
		return fmt.Sprintf("no instance %s after it was asked for: the Pod could not be created; look at this Proxy's events, and for quotas and admission policies in namespace %s", deadline, o.Proxy.Namespace)
	case o.Instance.Waiting != "":
		return fmt.Sprintf("the instance does not run %s after its creation: %s; kubectl describe pod -n %s %s tells more", deadline, o.Instance.Waiting, o.Proxy.Namespace, v1alpha1.InstanceName(o.Proxy.UID))
	}
	return fmt.Sprintf("the instance does not run %s after its creation; kubectl describe pod -n %s %s tells more", deadline, o.Proxy.Namespace, v1alpha1.InstanceName(o.Proxy.UID))
}

const runningMessage = "the instance is running"

// running: the instance is what the spec asks for. When that ends a replacement
// another look follows soon: its place in the budget is free once the API server
// has the status that says so, of which no event tells.
func running(o *Observation, hash string) Decision {
	d := Decision{
		Status:      o.serving(o.Instance, condition{metav1.ConditionTrue, v1alpha1.ReasonCreated, runningMessage + o.credentialsNote()}, hash),
		Instance:    MakeInstance,
		SpecHash:    hash,
		Probe:       o.probeOf(o.Instance),
		ResyncAfter: o.Timing.DriftPoll,
	}
	if o.HoldsPlace && d.Status.Phase == v1alpha1.PhaseReady && !o.knownReady() {
		d.ResyncAfter = min(d.ResyncAfter, o.Timing.DeletionPoll)
	}
	return d
}

// knownReady reports whether everybody can see that the observed instance is
// Ready.
func (o *Observation) knownReady() bool {
	return o.Proxy.Status.Phase == v1alpha1.PhaseReady && o.Proxy.Status.InstanceID == o.Instance.ID
}

// credentialsNote keeps nobody in the belief that a Pod asks for a password.
func (o *Observation) credentialsNote() string {
	if o.Proxy.Spec.CredentialsRef == nil || o.Instance.VM {
		return ""
	}
	return "; Pods do not ask for the credentials of credentialsRef yet, their guards are the NetworkPolicy and the provider's allowClients"
}

// replacementPending: the instance is outdated and serves on, because enough
// others are being replaced.
func replacementPending(o *Observation, hash string) Decision {
	provisioned := condition{metav1.ConditionTrue, v1alpha1.ReasonReplacementPending, fmt.Sprintf(
		"the spec has changed; the instance serves on as it is until fewer Proxies of provider %s are being replaced (--max-replacing); if it stays so, look for Proxies that did not get Ready after their replacement", o.Proxy.Spec.Provider) + o.credentialsNote()}
	return Decision{
		Status:      o.serving(o.Instance, provisioned, o.madeWith(hash)),
		Instance:    KeepInstance,
		Probe:       o.probeOf(o.Instance),
		ResyncAfter: o.Timing.DeletionPoll,
	}
}

// replacing: the instance is outdated and goes. Its id and hash stay in the
// status until it is seen to go: if the delete fails, an adopted instance must
// not be adopted once more, with the new hash.
func replacing(o *Observation, hash string) Decision {
	return Decision{
		Status:      o.idle(condition{metav1.ConditionFalse, v1alpha1.ReasonReplacing, o.withFailure("the spec has changed; waiting for the old instance to go")}, o.madeWith(hash)),
		Instance:    RemoveInstance,
		Replace:     o.replaced(),
		ResyncAfter: o.Timing.DeletionPoll,
	}
}

// replaced is the id of the VM to be got rid of.
func (o *Observation) replaced() string {
	if !o.Instance.VM {
		return ""
	}
	return o.Instance.ID
}

// terminating: the instance is on its way out, at our wish or not; the next one
// is listed once it is gone, since it has the same name.
func terminating(o *Observation, hash string) Decision {
	provisioned := condition{metav1.ConditionFalse, v1alpha1.ReasonReplacing, o.withFailure("waiting for the old instance to go")}
	switch o.previous(v1alpha1.ConditionProvisioned).Reason {
	case "", v1alpha1.ReasonProvisioning, v1alpha1.ReasonProvisioningTimeout:
		provisioned.reason = v1alpha1.ReasonProvisioning
	}
	return Decision{
		Status:      o.idle(provisioned, o.madeWith(hash)),
		Instance:    RemoveInstance,
		ResyncAfter: o.Timing.DeletionPoll,
	}
}

// ended: the instance will not serve again; a new one follows.
func ended(o *Observation, hash string) Decision {
	return Decision{
		Status:      o.idle(condition{metav1.ConditionFalse, v1alpha1.ReasonInstanceTerminated, o.withFailure("the instance has ended; it is removed and made anew")}, o.madeWith(hash)),
		Instance:    RemoveInstance,
		ResyncAfter: o.Timing.DeletionPoll,
	}
}

// unknown: the wanted state cannot be told, and everything stays as it is.
func unknown(o *Observation, why *trouble) Decision {
	d := Decision{
		Instance:    KeepInstance,
		KeepStrays:  true,
		ResyncAfter: o.Timing.DriftPoll,
	}
	if o.Instance.serves() {
		d.Status = o.serving(o.Instance, condition{metav1.ConditionTrue, why.reason, why.message + "; the running instance is left alone"}, o.madeWith(o.carriedHash()))
		d.Probe = o.probeOf(o.Instance)
		return d
	}
	hash := o.madeWith(o.carriedHash())
	if why.reason == v1alpha1.ReasonPermanentError && o.Instance.ID == "" {
		hash = "" // this trouble does not latch
	}
	d.Status = o.idle(condition{metav1.ConditionFalse, why.reason, why.message}, hash)
	if o.Probe != nil && o.Probe.DeletionTimestamp == nil {
		d.Probe = &o.Probe.Spec
	}
	return d
}

// carriedHash is what the status says about the observed instance, "" when it
// speaks of another one.
func (o *Observation) carriedHash() string {
	if o.Proxy.Status.InstanceID != o.Instance.ID {
		return ""
	}
	return o.Proxy.Status.SpecHash
}
