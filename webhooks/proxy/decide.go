package proxy

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// InstanceAction is what happens to the instance.
type InstanceAction string

const (
	// MakeInstance: it exists as the spec wants it. One that exists already stays
	// as it is.
	MakeInstance InstanceAction = "Make"
	// KeepInstance: one that exists stays as it is; none is created.
	KeepInstance InstanceAction = "Keep"
	// RemoveInstance: there is none.
	RemoveInstance InstanceAction = "Remove"
)

// Decision is the content of a hook's answer, without the children's objects.
type Decision struct {
	// Status of the Proxy.
	Status v1alpha1.ProxyStatus
	// Instance is what happens to the Pod or VM.
	Instance InstanceAction
	// SpecHash is the wanted hash, for an instance that is created now.
	SpecHash string
	// Replace is the id of the VM that the cloud adapter replaces. A Pod is left out
	// of the children instead.
	Replace string
	// Probe is the wanted ProxyProbe's spec, nil for none.
	Probe *v1alpha1.ProxyProbeSpec
	// KeepStrays: observed strays are listed again.
	KeepStrays bool
	// ResyncAfter is when Metacontroller calls the hook again; 0 requests no call.
	ResyncAfter time.Duration
	// Finalized: nothing of the Proxy is left.
	Finalized bool
}

// Decide is the decision table of the hooks. It is pure: the same observation
// gives the same decision. Time affects only the transition times of conditions
// and the provisioning deadline.
//
//	finalizing  instance                        instance  probe  Provisioned                 resync after
//	no          absent                          make      -      False/Provisioning          provisioning poll
//	no          coming up                       make      -      False/Provisioning          provisioning poll
//	no          the same, past the deadline     make      -      False/ProvisioningTimeout   drift poll
//	no          serves, up to date or adopted   make      yes    True/Created                drift poll
//	no          serves, outdated, may replace   remove    -      False/Replacing             removal poll
//	no          serves, outdated, may not       keep      yes    True/ReplacementPending     budget poll
//	no          coming up, outdated             remove    -      False/Replacing             removal poll
//	no          terminating                     remove    -      False/Replacing             removal poll
//	no          ended after it served           remove    -      False/InstanceTerminated    removal poll
//	no          ended before it served          remove    -      False/InstanceFailing       removal poll
//	no          ended, a Pod, retry not due     keep      -      one of these two            the rest of its backoff
//	no          any, wanted state unknown       keep      kept   as before, the block reason drift poll
//	yes         any                             remove    -      False/Deleting              removal poll
//	yes         absent                          remove    -      False/Deleting              finalized
//
// The same holds for VMs, which the cloud adapter reports. They add these rows:
//
//	no          absent, quota or zone exhausted make      -      False/QuotaExceeded, Stockout   its next retry, or the quota retry
//	no          absent, refused for now         make      -      False/CloudRefused              its next retry, or the quota retry
//	no          absent, refused permanently     make      -      False/PermanentError            drift poll, and from then on:
//	no          the same spec and user data     keep      kept   as before, no request is sent   drift poll
//	no          the adapter gives no state      keep      kept   as before                       drift or provisioning poll
//	no          the same, never had an instance keep      kept   False/CloudAdapterUnavailable   provisioning poll
//	yes         the adapter gives no state      remove    -      False/Deleting                  removal poll
//	yes         abandoned                       remove    -      False/Deleting                  finalized
//
// An External Proxy has a probe and no instance: True/ExternalEndpoint. It is
// finalized once its probe is gone: Metacontroller deletes no child in the sync
// that removes its finalizer. The answer that completes a replacement resyncs
// after the budget poll.
func Decide(o *Observation) (Decision, error) {
	d, err := decideRow(o)
	if err != nil {
		return Decision{}, err
	}
	// Metacontroller swallows a failed create, and no event follows it. Past the deadline
	// a quota or a policy refuses it, and the drift poll is soon enough.
	lacksProbe := d.Probe != nil && !o.HasProbe() && !o.probeMissing()
	if lacksProbe && (d.ResyncAfter == 0 || d.ResyncAfter > o.Timing.ProvisioningPoll) {
		d.ResyncAfter = o.Timing.ProvisioningPoll
	}
	return d, nil
}

func decideRow(o *Observation) (Decision, error) {
	mode := o.Proxy.Spec.Mode
	switch {
	case mode != v1alpha1.ModeExternal && mode != v1alpha1.ModeManaged:
		return Decision{}, fmt.Errorf("spec.mode is %q, which this release of webhooks does not know; the Proxy's children stay as they are", mode)
	case o.Finalizing:
		return finalizing(o), nil
	case mode == v1alpha1.ModeExternal && o.Proxy.Spec.Endpoint == nil:
		return Decision{}, fmt.Errorf("spec.endpoint is missing, which the CRD does not allow; install this release's CRDs")
	case mode == v1alpha1.ModeExternal:
		return external(o), nil
	case o.Wanted.Blocked != nil:
		return blockedSpec(o, o.Wanted.Blocked), nil
	}
	switch reply := o.Adapter.Blocked; {
	case reply != nil && reply.Reason == v1alpha1.ReasonCloudAdapterUnavailable:
		return adapterUnavailable(o), nil
	case reply != nil:
		return blockedSpec(o, reply), nil
	case o.Latched():
		return latched(o), nil
	}
	return managed(o), nil
}

func managed(o *Observation) Decision {
	in := o.Instance
	switch {
	case in.Terminating:
		return terminating(o)
	case in.State == InstanceAbsent:
		return comingUp(o)
	case in.State == InstanceEnded:
		return ended(o)
	case !o.outdated() && in.State == InstanceProvisioning:
		return comingUp(o)
	case !o.outdated():
		return running(o)
	case in.serves() && !o.MayReplace:
		return replacementPending(o)
	}
	return replacing(o)
}

// HasProbe reports whether there is a ProxyProbe that is not being deleted.
func (o *Observation) HasProbe() bool { return o.Probe != nil && o.Probe.DeletionTimestamp == nil }

// observedProbe is the spec of the observed ProxyProbe, to be listed unchanged.
func (o *Observation) observedProbe() *v1alpha1.ProxyProbeSpec {
	if !o.HasProbe() {
		return nil
	}
	return &o.Probe.Spec
}

// probeOf is the spec of the ProxyProbe of in.
func (o *Observation) probeOf(in Instance) *v1alpha1.ProxyProbeSpec {
	hc := o.Proxy.Spec.HealthCheck.OrDefault()
	spec := &v1alpha1.ProxyProbeSpec{
		InstanceID:     in.ID,
		Host:           in.IP,
		Port:           o.portOf(in),
		HealthCheck:    &hc,
		CredentialsRef: o.Proxy.Spec.CredentialsRef.DeepCopy(),
	}
	// http is the zero value: writing it out would rewrite every ProxyProbe.
	if scheme := o.Proxy.EffectiveScheme(); scheme != v1alpha1.SchemeHTTP {
		spec.Scheme = scheme
	}
	return spec
}

func finalizing(o *Observation) Decision {
	d := Decision{
		Status:   o.idle(condition{metav1.ConditionFalse, v1alpha1.ReasonDeleting, o.deletingMessage()}, o.instanceHash(o.carriedHash())),
		Instance: RemoveInstance,
	}
	if !o.Instance.Exists() && o.Probe == nil && len(o.Strays) == 0 {
		d.Finalized = true
		return d
	}
	d.ResyncAfter = o.Timing.RemovalPoll
	return d
}

func (o *Observation) deletingMessage() string {
	const message = "the Proxy is being deleted"
	switch reply := o.Adapter.Blocked; {
	case o.Adapter.Abandoned:
		return message + "; its annotation abandons the instance: the cloud receives no request, and the instance may run on and cost money"
	case reply != nil:
		return message + ", once the cloud confirms that its instance is gone: " + reply.Message +
			". If the provider is gone for good, the annotation " + v1alpha1.AnnotationAbandon + `: "true" lets the Proxy go without it`
	}
	return o.withFailure(message)
}

func external(o *Observation) Decision {
	e := o.Proxy.Spec.Endpoint
	in := Instance{State: InstanceRunning, IP: e.Host, Port: e.Port, ID: v1alpha1.ExternalInstanceID(*e)}
	d := Decision{
		Instance: RemoveInstance,
		Status:   o.serving(in, condition{metav1.ConditionTrue, v1alpha1.ReasonExternalEndpoint, "the endpoint is run outside this cluster's control"}, ""),
		Probe:    o.probeOf(in),
	}
	if d.Status.Phase == v1alpha1.PhaseProbing {
		d.ResyncAfter = o.Timing.DriftPoll
	}
	return d
}
