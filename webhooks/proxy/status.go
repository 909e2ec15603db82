package proxy

import (
	"fmt"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// Reasons of the Healthy condition without a verdict of the prober. Beside them,
// v1alpha1.ReasonReplacing marks a voluntary replacement from its beginning to
// the new instance's first verdict. A restarted hook process counts its budget
// from that mark.
const (
	// ReasonNoInstance: there is nothing to probe.
	ReasonNoInstance = "NoInstance"
	// ReasonProbePending: the instance has no verdict yet.
	ReasonProbePending = "ProbePending"
	// ReasonProbeMissing: it will get none, since it has no ProxyProbe.
	ReasonProbeMissing = "ProbeMissing"
)

// condition is a condition without its type, generation and time.
type condition struct {
	status          metav1.ConditionStatus
	reason, message string
}

// idle is the status of a Proxy that crawlers cannot use now: no address, no
// health. An existing instance is named with the hash it was created with.
func (o *Observation) idle(provisioned condition, hash string) v1alpha1.ProxyStatus {
	healthy := condition{metav1.ConditionUnknown, ReasonNoInstance, "no instance is running"}
	begins := provisioned.reason == v1alpha1.ReasonReplacing && o.Instance.serves()
	if !o.Finalizing && (begins || o.ReplacementUnderWay()) {
		healthy = condition{metav1.ConditionUnknown, v1alpha1.ReasonReplacing, "the instance is being replaced"}
	}
	s := o.status(provisioned, healthy)
	switch {
	case o.Instance.Exists():
		s.ProviderID, s.InstanceID, s.SpecHash = o.Instance.ProviderID, o.Instance.ID, hash
	case o.Provider.IsCloud() && !o.Finalizing:
		s.SpecHash = hash // marks a requested VM
	}
	return s
}

// serving is the status of a Proxy whose instance in runs, with the prober's
// verdict on that very instance.
func (o *Observation) serving(in Instance, provisioned condition, hash string) v1alpha1.ProxyStatus {
	s := o.status(provisioned, o.health(in))
	s.IP, s.Port = in.IP, o.portOf(in)
	s.ProviderID, s.InstanceID, s.SpecHash = in.ProviderID, in.ID, hash
	if o.verdictApplies(in) {
		s.LatencyMillis = o.Probe.Status.LatencyMillis
		s.LastHealthCheckTime = o.Probe.Status.LastProbeTime
		s.ExitIP = o.Probe.Status.ExitIP
	}
	return s
}

// portOf is the port that in listens on: its own if known, or the one reported
// for it before, or the spec's.
func (o *Observation) portOf(in Instance) int32 {
	switch {
	case in.Port != 0:
		return in.Port
	case o.Proxy.Status.InstanceID == in.ID && o.Proxy.Status.Port != 0:
		return o.Proxy.Status.Port
	}
	return o.Proxy.EffectivePort()
}

// verdictApplies reports whether the ProxyProbe's verdict is about in.
func (o *Observation) verdictApplies(in Instance) bool {
	return o.Probe != nil && o.Probe.Status.InstanceID == in.ID && o.Probe.Status.Verdict != ""
}

// Ready reports whether the instance serves and its verdict is Healthy.
func (o *Observation) Ready() bool {
	return o.Instance.serves() && o.health(o.Instance).status == metav1.ConditionTrue
}

func (o *Observation) health(in Instance) condition {
	if !o.verdictApplies(in) || o.Probe.Status.Verdict == v1alpha1.VerdictUnknown {
		return o.noVerdict(in)
	}
	p := o.Probe.Status
	if p.Verdict == v1alpha1.VerdictHealthy {
		return condition{metav1.ConditionTrue, validReason(p.Reason, "Healthy"), p.Message}
	}
	return condition{metav1.ConditionFalse, validReason(p.Reason, "Unhealthy"), p.Message}
}

func (o *Observation) noVerdict(in Instance) condition {
	c := condition{metav1.ConditionUnknown, ReasonProbePending, "waiting for the prober's first verdict"}
	switch {
	case o.probeMissing():
		c.reason, c.message = ReasonProbeMissing, o.probeMissingMessage()
	case o.ReplacementUnderWay():
		c.message = "the new instance is running; " + c.message
	case o.verdictApplies(in):
		c.reason, c.message = validReason(o.Probe.Status.Reason, ReasonProbePending), o.Probe.Status.Message
	}
	if o.ReplacementUnderWay() {
		c.reason = v1alpha1.ReasonReplacing
	}
	return c
}

// probeMissing reports whether the creation of the ProxyProbe has timed out. It
// is listed from the moment when the instance runs, and Metacontroller does not
// report a failed create to the hook.
func (o *Observation) probeMissing() bool {
	p := o.previous(v1alpha1.ConditionProvisioned)
	return o.Probe == nil && p.Status == metav1.ConditionTrue && o.Now.Sub(p.LastTransitionTime.Time) > o.Timing.ProvisioningDeadline
}

func (o *Observation) probeMissingMessage() string {
	ns, name := o.Proxy.Namespace, o.Proxy.Name
	return fmt.Sprintf("the prober does not check it: this Proxy has no ProxyProbe %[1]s/%[2]s. Either a ProxyProbe of that name belongs to another owner (kubectl get proxyprobe -n %[1]s %[2]s; delete it if it is not needed), or it could not be created: look at this Proxy's events, and for quotas and admission policies in namespace %[1]s", ns, name)
}

// reasonPattern is what the API server accepts as a condition's reason.
var reasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// validReason is reason, or fallback when the API server would refuse it. The
// ProxyProbe's schema accepts more than a condition's, and one invalid reason
// would block the write of the whole status.
func validReason(reason, fallback string) string {
	if !reasonPattern.MatchString(reason) {
		return fallback
	}
	return reason
}

// status has the two conditions and the phase that sums them up. The transition
// time of a condition changes only with its status.
func (o *Observation) status(provisioned, healthy condition) v1alpha1.ProxyStatus {
	s := v1alpha1.ProxyStatus{ObservedGeneration: o.Proxy.Generation, Phase: o.phase(provisioned, healthy), Reason: statusReason(provisioned, healthy)}
	now := metav1.NewTime(o.Now.UTC().Truncate(time.Second)) // as the API server stores it
	set := func(conditionType string, c condition) {
		if old := o.previous(conditionType); !old.LastTransitionTime.IsZero() {
			s.Conditions = append(s.Conditions, old)
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: conditionType, Status: c.status, Reason: c.reason, Message: c.message, ObservedGeneration: o.Proxy.Generation, LastTransitionTime: now,
		})
	}
	set(v1alpha1.ConditionProvisioned, provisioned)
	set(v1alpha1.ConditionHealthy, healthy)
	return s
}

// statusReason is the reason in the printer column, empty for a Proxy in order.
// What does not work comes before what only needs attention: an instance whose
// wanted state is unknown, and a suppressed verdict.
func statusReason(provisioned, healthy condition) string {
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

// phase sums up two conditions.
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
	case v1alpha1.ReasonProvisioningTimeout, v1alpha1.ReasonCloudRefused, v1alpha1.ReasonInstanceFailing:
		return v1alpha1.PhaseFailed
	}
	// The wanted state is unknown. An instance that is coming up may still serve;
	// any other case needs an operator.
	if o.Instance.State == InstanceProvisioning && !o.Instance.Terminating {
		return v1alpha1.PhaseProvisioning
	}
	return v1alpha1.PhaseFailed
}
