package webhooks

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// Reasons of the Healthy condition while the prober has no say. Beside them,
// v1alpha1.ReasonReplacing marks a replacement that was ours to decide from its
// beginning to the new instance's first verdict: a restarted process learns
// from it how many are under way.
const (
	// ReasonNoInstance: there is nothing to probe.
	ReasonNoInstance = "NoInstance"
	// ReasonProbePending: the instance has no verdict yet.
	ReasonProbePending = "ProbePending"
	// ReasonProbeMissing: nor will it get one, since it has no ProxyProbe.
	ReasonProbeMissing = "ProbeMissing"
)

// condition is a condition without its type, generation and time.
type condition struct {
	status          metav1.ConditionStatus
	reason, message string
}

// idle is the status of a Proxy that nobody can use now: no address, no health.
// An instance that exists is named all the same, with the hash it was made
// with.
func (o *Observation) idle(provisioned condition, hash string) v1alpha1.ProxyStatus {
	healthy := condition{metav1.ConditionUnknown, ReasonNoInstance, "no instance is running"}
	if o.marksReplacement(provisioned) {
		healthy = condition{metav1.ConditionUnknown, v1alpha1.ReasonReplacing, "the instance is being replaced"}
	}
	s := o.status(provisioned, healthy)
	switch {
	case o.Instance.exists():
		s.ProviderID, s.InstanceID, s.SpecHash = o.Instance.ProviderID, o.Instance.ID, hash
	case o.Provider.outside() && !o.Finalizing:
		s.SpecHash = hash // it was asked for, and may be on its way
	}
	return s
}

func (o *Observation) marksReplacement(provisioned condition) bool {
	if o.Finalizing {
		return false
	}
	begins := provisioned.reason == v1alpha1.ReasonReplacing && o.Instance.serves()
	return begins || o.replacementUnderWay()
}

// serving is the status of a Proxy whose instance in runs, with the prober's
// verdict on that very instance.
func (o *Observation) serving(in Instance, provisioned condition, hash string) v1alpha1.ProxyStatus {
	s := o.status(provisioned, o.health(in))
	s.IP, s.Port = in.IP, o.portOf(in)
	s.ProviderID, s.InstanceID, s.SpecHash = in.ProviderID, in.ID, hash
	if o.believes(in) {
		s.LatencyMillis = o.Probe.Status.LatencyMillis
		s.LastHealthCheckTime = o.Probe.Status.LastProbeTime
		s.ExitIP = o.Probe.Status.ExitIP
	}
	return s
}

// portOf is the port that in listens on: its own, or, when it does not tell,
// the one reported for it before, or the spec's.
func (o *Observation) portOf(in Instance) int32 {
	switch {
	case in.Port != 0:
		return in.Port
	case o.Proxy.Status.InstanceID == in.ID && o.Proxy.Status.Port != 0:
		return o.Proxy.Status.Port
	}
	return o.Proxy.EffectivePort()
}

// believes reports whether the ProxyProbe's verdict is about in.
func (o *Observation) believes(in Instance) bool {
	return o.Probe != nil && o.Probe.Status.InstanceID == in.ID && o.Probe.Status.Verdict != ""
}

// ready reports whether the instance serves, and the prober says that it does.
func (o *Observation) ready() bool {
	return o.Instance.serves() && o.health(o.Instance).status == metav1.ConditionTrue
}

func (o *Observation) health(in Instance) condition {
	if !o.believes(in) || o.Probe.Status.Verdict == v1alpha1.VerdictUnknown {
		return o.unprobed(in)
	}
	p := o.Probe.Status
	if p.Verdict == v1alpha1.VerdictHealthy {
		return condition{metav1.ConditionTrue, reasonOr(p.Reason, "Healthy"), p.Message}
	}
	return condition{metav1.ConditionFalse, reasonOr(p.Reason, "Unhealthy"), p.Message}
}

func (o *Observation) unprobed(in Instance) condition {
	c := condition{metav1.ConditionUnknown, ReasonProbePending, "waiting for the prober's first verdict"}
	switch {
	case o.probeMissing():
		c.reason, c.message = ReasonProbeMissing, o.probeMissingMessage()
	case o.replacementUnderWay():
		c.message = "the new instance is running; " + c.message
	case o.believes(in):
		c.reason, c.message = reasonOr(o.Probe.Status.Reason, ReasonProbePending), o.Probe.Status.Message
	}
	if o.replacementUnderWay() {
		c.reason = v1alpha1.ReasonReplacing
	}
	return c
}

// probeMissing reports whether the ProxyProbe should have been there long ago. It
// is listed from the moment when the instance runs. Of a create that did not
// happen Metacontroller does not tell.
func (o *Observation) probeMissing() bool {
	p := o.previous(v1alpha1.ConditionProvisioned)
	return o.Probe == nil && p.Status == metav1.ConditionTrue && o.Now.Sub(p.LastTransitionTime.Time) > o.Timing.ProvisioningDeadline
}

func (o *Observation) probeMissingMessage() string {
	ns, name := o.Proxy.Namespace, o.Proxy.Name
	return fmt.Sprintf("nobody probes it: this Proxy has no ProxyProbe %s/%s. Either somebody else's has that name (kubectl get proxyprobe -n %s %s; delete it if nobody needs it), or it could not be created: look at this Proxy's events, and for quotas and admission policies in namespace %s",
		ns, name, ns, name, ns)
}

// reasonPattern is what the API server accepts as a condition's reason.
var reasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// reasonOr is reason, or fallback when the API server would refuse it: the
// ProxyProbe's schema is wider than a condition's, and one bad word must not
// keep the whole status from being written.
func reasonOr(reason, fallback string) string {
	if !reasonPattern.MatchString(reason) {
		return fallback
	}
	return reason
}

// status has the two conditions and the phase that sums them up. A condition
// takes the time of the observation only where its status changes.
func (o *Observation) status(provisioned, healthy condition) v1alpha1.ProxyStatus {
	s := v1alpha1.ProxyStatus{ObservedGeneration: o.Proxy.Generation}
	for _, c := range []struct {
		name string
		condition
	}{{v1alpha1.ConditionProvisioned, provisioned}, {v1alpha1.ConditionHealthy, healthy}} {
		if old := meta.FindStatusCondition(o.Proxy.Status.Conditions, c.name); old != nil {
			s.Conditions = append(s.Conditions, *old)
		}
		s.Conditions = v1alpha1.SetCondition(s.Conditions, metav1.Condition{
			Type: c.name, Status: c.status, Reason: c.reason, Message: c.message, ObservedGeneration: o.Proxy.Generation,
		}, o.Now)
	}
	s.Phase, s.Reason = o.phase(provisioned, healthy), notable(provisioned, healthy)
	return s
}

// notable is the one word for what is not well, empty when nothing is. What does
// not work comes before what only needs attention: an instance that is left alone
// although nobody knows what it should be, and a verdict that is held.
func notable(provisioned, healthy condition) string {
	switch {
	case provisioned.status != metav1.ConditionTrue:
		return provisioned.reason
	case healthy.status != metav1.ConditionTrue:
		return healthy.reason
	case provisioned.reason != v1alpha1.ReasonCreated && provisioned.reason != v1alpha1.ReasonExternalEndpoint:
		return provisioned.reason
	case healthy.reason == v1alpha1.ReasonProbeTargetDown:
		return healthy.reason
	}
	return ""
}

// phase is the one word for two conditions.
func (o *Observation) phase(provisioned, healthy condition) v1alpha1.Phase {
	switch {
	case o.Finalizing:
		return v1alpha1.PhaseDeleting
	case provisioned.status == metav1.ConditionTrue && healthy.status == metav1.ConditionTrue:
		return v1alpha1.PhaseReady
	case provisioned.status == metav1.ConditionTrue && healthy.status == metav1.ConditionFalse:
		return v1alpha1.PhaseUnhealthy
	case provisioned.status == metav1.ConditionTrue:
		return v1alpha1.PhaseProbing
	}
	switch provisioned.reason {
	case v1alpha1.ReasonReplacing, v1alpha1.ReasonInstanceTerminated:
		return v1alpha1.PhaseReplacing
	case v1alpha1.ReasonProvisioning, v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonStockout, v1alpha1.ReasonCloudAdapterUnavailable:
		return v1alpha1.PhaseProvisioning
	case v1alpha1.ReasonProvisioningTimeout:
		return v1alpha1.PhaseFailed
	}
	return o.troubledPhase()
}

// troubledPhase: the wanted state is unknown and nothing serves. An instance
// that is coming up still may; otherwise somebody has to act.
func (o *Observation) troubledPhase() v1alpha1.Phase {
	if o.Instance.State == InstanceProvisioning && !o.Instance.Terminating {
		return v1alpha1.PhaseProvisioning
	}
	return v1alpha1.PhaseFailed
}
