package webhooks

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// decide is the decision table of the hooks. It is pure: the same observation
// gives the same decision, and time matters only for the transition times of
// conditions and for the provisioning deadline.
//
//	finalizing  instance                        instance  probe  Provisioned                 look again
//	no          absent                          make      -      False/Provisioning          provisioning poll
//	no          coming up                       make      -      False/Provisioning          provisioning poll
//	no          the same, past the deadline     make      -      False/ProvisioningTimeout   drift poll
//	no          serves, up to date or adopted   make      yes    True/Created                drift poll
//	no          serves, outdated, may replace   remove    -      False/Replacing             deletion poll
//	no          serves, outdated, may not       keep      yes    True/ReplacementPending     deletion poll
//	no          coming up, outdated             remove    -      False/Replacing             deletion poll
//	no          terminating                     remove    -      False/Replacing             deletion poll
//	no          ended                           remove    -      False/InstanceTerminated    deletion poll
//	no          any, wanted state unknown       keep      kept   as it was, the trouble      drift poll
//	yes         any                             remove    -      False/Deleting              deletion poll
//	yes         absent                          remove    -      False/Deleting              finalized
//
// The same for VMs, of which the cloud adapter tells, with its own troubles:
//
//	no          absent, quota or zone used up   make      -      False/QuotaExceeded, Stockout   its next try, or the quota retry
//	no          absent, refused for good        make      -      False/PermanentError            drift poll, and from then on:
//	no          the same spec and user data     keep      kept   as it was, nobody is asked      drift poll
//	no          the adapter does not tell       keep      kept   as it was                       drift or provisioning poll
//	no          the same, never had an instance keep      kept   False/CloudAdapterUnavailable   provisioning poll
//	yes         the adapter does not tell       remove    -      False/Deleting                  deletion poll
//	yes         abandoned                       remove    -      False/Deleting                  finalized
//
// External Proxies have a probe and no instance: True/ExternalEndpoint. They are
// finalized as soon as their probe is gone: Metacontroller deletes no child in
// the sync that removes its finalizer. The answer that ends a replacement asks
// for another look after the deletion poll.
func decide(o Observation) (Decision, error) {
	d, err := decideRow(&o)
	if err != nil {
		return Decision{}, err
	}
	// A create that Metacontroller swallowed wakes nobody.
	if o.awaits(&d) && (d.ResyncAfter == 0 || d.ResyncAfter > o.Timing.ProvisioningPoll) {
		d.ResyncAfter = o.Timing.ProvisioningPoll
	}
	return d, nil
}

func decideRow(o *Observation) (Decision, error) {
	mode := o.Proxy.Spec.Mode
	switch {
	case mode != v1alpha1.ModeExternal && mode != v1alpha1.ModeManaged:
		return Decision{}, fmt.Errorf("spec.mode is %q, which this release of webhooks does not know; its children are left alone", mode)
	case o.Finalizing:
		return finalizing(o), nil
	case mode == v1alpha1.ModeExternal && o.Proxy.Spec.Endpoint == nil:
		return Decision{}, fmt.Errorf("spec.endpoint is missing, which the CRD does not allow; install this release's CRDs")
	case mode == v1alpha1.ModeExternal:
		return external(o), nil
	}
	hash, why := o.wanted()
	if why != nil {
		return unknown(o, why), nil
	}
	switch problem := o.Cloud.Problem; {
	case problem != nil && problem.reason == v1alpha1.ReasonCloudAdapterUnavailable:
		return unreachable(o, hash), nil
	case problem != nil:
		return unknown(o, problem), nil
	case o.latched(hash):
		return latched(o, hash), nil
	}
	return managed(o, hash), nil
}

func managed(o *Observation, hash string) Decision {
	in := o.Instance
	switch {
	case in.Terminating:
		return terminating(o, hash)
	case in.State == InstanceAbsent:
		return comingUp(o, hash)
	case in.State == InstanceEnded:
		return ended(o, hash)
	case !o.outdated(hash) && in.State == InstanceProvisioning:
		return comingUp(o, hash)
	case !o.outdated(hash):
		return running(o, hash)
	case in.serves() && !o.MayReplace:
		return replacementPending(o, hash)
	}
	return replacing(o, hash)
}

// awaits reports whether d lists a child that was not observed.
func (o *Observation) awaits(d *Decision) bool {
	probeThere := o.Probe != nil && o.Probe.DeletionTimestamp == nil
	podThere := o.Provider.outside() || o.Instance.exists()
	return d.Probe != nil && !probeThere || d.Instance == MakeInstance && !podThere
}

func finalizing(o *Observation) Decision {
	d := Decision{
		Status:   o.idle(condition{metav1.ConditionFalse, v1alpha1.ReasonDeleting, o.deletingMessage()}, o.madeWith(o.carriedHash())),
		Instance: RemoveInstance,
	}
	if o.childless() {
		d.Finalized = true
		return d
	}
	d.ResyncAfter = o.Timing.DeletionPoll
	return d
}

func (o *Observation) deletingMessage() string {
	const message = "the Proxy is being deleted"
	switch problem := o.Cloud.Problem; {
	case o.Cloud.Abandoned:
		return message + "; its annotation says to abandon the instance: the cloud is not asked, and the instance may run on and cost money"
	case problem != nil:
		return message + ", once the cloud confirms that its instance is gone: " + problem.message +
			". If the provider is gone for good, the annotation " + v1alpha1.AnnotationAbandon + `: "true" lets the Proxy go without it`
	}
	return o.withFailure(message)
}

// childless reports whether no child is left.
func (o *Observation) childless() bool {
	return !o.Instance.exists() && o.Probe == nil && len(o.Strays) == 0
}

func external(o *Observation) Decision {
	e := o.Proxy.Spec.Endpoint
	in := Instance{State: InstanceRunning, IP: e.Host, Port: e.Port, ID: v1alpha1.ExternalInstanceID(*e)}
	d := Decision{
		Instance: RemoveInstance,
		Status:   o.serving(in, condition{metav1.ConditionTrue, v1alpha1.ReasonExternalEndpoint, "the endpoint is run by somebody else"}, ""),
		Probe:    o.probeOf(in),
	}
	if d.Status.Phase == v1alpha1.PhaseProbing {
		d.ResyncAfter = o.Timing.DriftPoll
	}
	return d
}
