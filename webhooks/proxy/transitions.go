package proxy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// Reasons of Events that are not also reasons of a condition. The others are
// v1alpha1.ReasonReplacing, ReasonReplacementPending and those in needsAttention.
const (
	// EventCreated: there is a new instance.
	EventCreated = "Created"
	// EventAdopted: the instance carries no known hash, and counts as what the spec
	// asks for.
	EventAdopted = "Adopted"
	// EventEndpointChanged: an External Proxy has another endpoint.
	EventEndpointChanged = "EndpointChanged"
	// EventInstanceTerminated: the instance ended, terminates or is gone, and not
	// because of its spec.
	EventInstanceTerminated = v1alpha1.ReasonInstanceTerminated
	// EventRecovered: the condition that needed attention is over.
	EventRecovered = "Recovered"
	// EventHealthy, EventUnhealthy and EventHealthUnknown: the prober's verdict on
	// the running instance has changed.
	EventHealthy, EventUnhealthy, EventHealthUnknown = "Healthy", "Unhealthy", "HealthUnknown"
	// EventDeletionStuck: the deletion of a Proxy has timed out.
	EventDeletionStuck = "DeletionStuck"
	// EventAbandoned: a deleted Proxy went without a request to the cloud.
	EventAbandoned = "Abandoned"
)

// Event is a line below `kubectl describe px`.
type Event struct {
	// Type is corev1.EventTypeNormal or EventTypeWarning.
	Type string
	// Reason is machine-readable.
	Reason string
	// Message is for people. It contains no secrets.
	Message string
	// ID identifies this occurrence among all of the same Proxy. The same request,
	// sent again, yields the same ID.
	ID string
}

// Transitions returns the Events of what d changes in the status of o's Proxy.
// It is pure. A state that lasts yields an Event when it begins and when it ends.
func Transitions(o *Observation, d *Decision) []Event {
	if o.Finalizing {
		return slices.Concat(o.abandoned(d), o.deletionStuck(d))
	}
	return slices.Concat(o.instanceLost(d), o.instanceNew(d), o.provisionedChanged(d), o.healthChanged(d))
}

// left is an Event about a condition that changes. The condition's old value and
// its transition time identify the change. A condition that stays True has the
// same transition time, so the object's version is added.
func (o *Observation) left(kind, reason, message string, old, now metav1.Condition) []Event {
	id := []string{reason, string(old.Status), old.LastTransitionTime.UTC().Format(time.RFC3339), o.Proxy.Status.InstanceID, o.Instance.ID}
	if old.Status == metav1.ConditionTrue && now.Status == metav1.ConditionTrue {
		id = append(id, o.Proxy.ResourceVersion)
	}
	return []Event{{Type: kind, Reason: reason, Message: message, ID: strings.Join(id, "/")}}
}

// end is an Event about the end of an instance. All of them have one ID: the hook
// also observes the deletion of an instance that it replaces, maybe before its own
// reason for it is in the status.
func (o *Observation) end(kind, reason, message string) []Event {
	return []Event{{Type: kind, Reason: reason, Message: message, ID: "end/" + cmp.Or(o.Proxy.Status.InstanceID, o.Instance.ID)}}
}

// instanceNew: there is an instance that the status does not have.
func (o *Observation) instanceNew(d *Decision) []Event {
	before, id := o.Proxy.Status.InstanceID, d.Status.InstanceID
	if id == "" || id == before {
		return nil
	}
	e := Event{Type: corev1.EventTypeNormal, Reason: EventCreated, Message: o.instanceText() + " is created", ID: "begin/" + id}
	switch {
	case o.Proxy.Spec.Mode == v1alpha1.ModeExternal:
		if before == "" {
			return nil // it existed before the Proxy
		}
		e.Reason, e.Message = EventEndpointChanged, "the endpoint is now "+address(&d.Status)+"; it is probed afresh"
	case d.Instance == RemoveInstance:
		return nil // its removal has an Event of its own
	case !v1alpha1.SpecHashKnown(o.Instance.SpecHash):
		e.Reason, e.Message = EventAdopted, o.instanceText()+" carries no hash of this release, and counts as what the spec asks for"
	}
	return []Event{e}
}

// instanceLost: the instance of the status is gone or terminates, and no decision
// of the hook caused that.
func (o *Observation) instanceLost(d *Decision) []Event {
	status, old := &o.Proxy.Status, o.previous(v1alpha1.ConditionProvisioned)
	now := conditionOf(&d.Status, v1alpha1.ConditionProvisioned).Reason
	kept := d.Instance == KeepInstance && now != v1alpha1.ReasonInstanceTerminated
	if o.Proxy.Spec.Mode != v1alpha1.ModeManaged || status.InstanceID == "" || kept || endsOf[old.Reason] || now == v1alpha1.ReasonInstanceFailing {
		return nil
	}
	message := ""
	switch {
	case !o.Instance.Exists(), o.Instance.ID != status.InstanceID:
		message = fmt.Sprintf("the instance %s (id %s) is gone; it is created anew", status.ProviderID, status.InstanceID)
	case o.Instance.Terminating && old.Status == metav1.ConditionTrue:
		message = o.instanceText() + " is being deleted, and not because of its spec: it was evicted, or deleted by hand; another one follows"
	case o.Instance.State == InstanceEnded:
		message = o.withFailure(o.instanceText() + " has ended" + o.endNote() + "; it is removed and created anew")
	default:
		return nil
	}
	return o.end(corev1.EventTypeWarning, EventInstanceTerminated, message)
}

// endsOf are the reasons of Provisioned whose Event covers the end of the instance.
var endsOf = map[string]bool{
	v1alpha1.ReasonReplacing: true, v1alpha1.ReasonInstanceTerminated: true, v1alpha1.ReasonInstanceFailing: true,
}

// provisionedChanged: the Provisioned condition has another reason.
func (o *Observation) provisionedChanged(d *Decision) []Event {
	old, now := o.previous(v1alpha1.ConditionProvisioned), conditionOf(&d.Status, v1alpha1.ConditionProvisioned)
	switch {
	case old.Reason == now.Reason:
		return nil
	case needsAttention[now.Reason]:
		return o.left(corev1.EventTypeWarning, now.Reason, now.Message, old, now)
	case now.Reason == v1alpha1.ReasonReplacementPending:
		return o.left(corev1.EventTypeNormal, now.Reason, o.whatChanged()+": "+now.Message, old, now)
	case now.Reason == v1alpha1.ReasonReplacing && !o.Instance.Terminating:
		return o.end(corev1.EventTypeNormal, now.Reason, o.whatChanged()+": "+o.instanceText()+" goes, and another one follows")
	case needsAttention[old.Reason] && now.Status == metav1.ConditionTrue:
		return o.left(corev1.EventTypeNormal, EventRecovered, old.Reason+" is over: "+now.Message, old, now)
	}
	return nil
}

// needsAttention are the reasons of Provisioned that an operator acts on.
var needsAttention = map[string]bool{
	v1alpha1.ReasonQuotaExceeded: true, v1alpha1.ReasonStockout: true, v1alpha1.ReasonPermanentError: true, v1alpha1.ReasonCloudInitError: true,
	v1alpha1.ReasonUnknownProvider: true, v1alpha1.ReasonCloudAdapterUnavailable: true, v1alpha1.ReasonProvisioningTimeout: true,
	v1alpha1.ReasonCloudRefused: true, v1alpha1.ReasonInstanceFailing: true,
}

// healthChanged: the verdict on a serving instance has changed, or has become
// unavailable.
func (o *Observation) healthChanged(d *Decision) []Event {
	old, now := o.previous(v1alpha1.ConditionHealthy), conditionOf(&d.Status, v1alpha1.ConditionHealthy)
	if d.Status.IP == "" || old.Status == now.Status && old.Reason == now.Reason {
		return nil
	}
	flipped, why := old.Status != now.Status, strings.TrimSuffix(now.Reason+": "+now.Message, ": ")
	switch {
	case flipped && now.Status == metav1.ConditionFalse:
		return o.left(corev1.EventTypeWarning, EventUnhealthy, why, old, now)
	case flipped && now.Status == metav1.ConditionTrue:
		message := now.Reason + " at " + address(&d.Status)
		if d.Status.ExitIP != "" {
			message += ", targets see " + d.Status.ExitIP
		}
		return o.left(corev1.EventTypeNormal, EventHealthy, message, old, now)
	case now.Reason == v1alpha1.ReasonProbeTargetDown && now.Status == metav1.ConditionTrue, now.Reason == ReasonProbeMissing:
		return o.left(corev1.EventTypeWarning, now.Reason, now.Message, old, now)
	case now.Status == metav1.ConditionUnknown && now.Reason != ReasonProbePending && now.Reason != v1alpha1.ReasonReplacing:
		return o.left(corev1.EventTypeWarning, EventHealthUnknown, why, old, now)
	}
	return nil
}

// abandoned: the Proxy goes, and its VM may not.
func (o *Observation) abandoned(d *Decision) []Event {
	if !o.Adapter.Abandoned || !d.Finalized {
		return nil
	}
	status := &o.Proxy.Status
	return []Event{{Type: corev1.EventTypeWarning, Reason: EventAbandoned, ID: EventAbandoned, Message: fmt.Sprintf(
		"the annotation %s lets the Proxy go without a request to the cloud: instance %s (%s, id %s) of provider %s may run on and cost money",
		v1alpha1.AnnotationAbandon, v1alpha1.InstanceName(o.Proxy.UID), cmp.Or(status.ProviderID, "never seen"), cmp.Or(status.InstanceID, "unknown"), o.Proxy.Spec.Provider)}}
}

// deletionStuck: the deletion has timed out. Without an event the status must
// stay the same, so only the Event reports it, once.
func (o *Observation) deletionStuck(d *Decision) []Event {
	since := o.Proxy.DeletionTimestamp
	if since == nil || d.Finalized || o.Now.Sub(since.Time) <= o.Timing.ProvisioningDeadline {
		return nil
	}
	what := conditionOf(&d.Status, v1alpha1.ConditionProvisioned).Message
	switch {
	case o.Adapter.Blocked != nil: // the message names it
	case o.Instance.Exists():
		what += "; waiting for " + o.instanceText() + " to go"
	default:
		what += "; waiting for its other children to go"
	}
	return []Event{{Type: corev1.EventTypeWarning, Reason: EventDeletionStuck, ID: EventDeletionStuck,
		Message: fmt.Sprintf("not gone %s after its deletion: %s", o.Timing.ProvisioningDeadline, what)}}
}

// whatChanged is why the instance is outdated, as far as it is known: of the old
// spec only the port and a hash are left.
func (o *Observation) whatChanged() string {
	spec, port, was := &o.Proxy.Spec, o.Proxy.EffectivePort(), o.portOf(o.Instance)
	const rest = "spec.placement or spec.cloudInit has changed"
	switch {
	case was != port && v1alpha1.SpecHash(spec.Placement, o.CloudInit.Content, was) == o.instanceHash(""):
		return fmt.Sprintf("spec.port has changed from %d to %d", was, port)
	case was != port:
		return fmt.Sprintf("spec.port has changed from %d to %d, and %s", was, port, rest)
	case spec.CloudInit == nil || spec.CloudInit.SecretRef == nil:
		return rest
	case o.previous(v1alpha1.ConditionProvisioned).Reason == v1alpha1.ReasonReplacementPending:
		return "spec.placement, spec.cloudInit or the content of its Secret has changed" // an earlier Event named which
	case o.Proxy.Status.ObservedGeneration == o.Proxy.Generation:
		return fmt.Sprintf("the content of Secret %s (spec.cloudInit.secretRef) has changed", spec.CloudInit.SecretRef.Name)
	}
	return rest
}

// instanceText names the observed instance. A Pod's name survives a replacement,
// its id does not.
func (o *Observation) instanceText() string {
	kind := "Pod"
	if o.Instance.VM {
		kind = "VM"
	}
	return fmt.Sprintf("%s %s (id %s)", kind, o.Instance.ProviderID, o.Instance.ID)
}

func address(s *v1alpha1.ProxyStatus) string {
	if strings.Contains(s.IP, ":") {
		return fmt.Sprintf("[%s]:%d", s.IP, s.Port)
	}
	return fmt.Sprintf("%s:%d", s.IP, s.Port)
}
