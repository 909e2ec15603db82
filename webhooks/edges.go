package webhooks

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
// v1alpha1.ReasonReplacing, ReasonReplacementPending and the troubles.
const (
	// EventCreated: there is a new instance.
	EventCreated = "Created"
	// EventAdopted: there is one that carries no hash of this release, and counts
	// as what the spec asks for.
	EventAdopted = "Adopted"
	// EventEndpointChanged: an External Proxy is somewhere else now.
	EventEndpointChanged = "EndpointChanged"
	// EventInstanceTerminated: the instance ended, goes or is gone, and not because
	// of its spec.
	EventInstanceTerminated = v1alpha1.ReasonInstanceTerminated
	// EventRecovered: what the status complained about is over.
	EventRecovered = "Recovered"
	// EventHealthy, EventUnhealthy and EventHealthUnknown: the prober's verdict on
	// the running instance has changed.
	EventHealthy, EventUnhealthy, EventHealthUnknown = "Healthy", "Unhealthy", "HealthUnknown"
	// EventDeletionStuck: a deleted Proxy is not gone after the deadline.
	EventDeletionStuck = "DeletionStuck"
	// EventAbandoned: a deleted Proxy went without the cloud being asked.
	EventAbandoned = "Abandoned"
)

// Event is a line below `kubectl describe px`.
type Event struct {
	// Type is corev1.EventTypeNormal or EventTypeWarning.
	Type string
	// Reason is a word for machines.
	Reason string
	// Message is for people. Like a condition's it holds no secrets.
	Message string
	// Edge tells this occurrence from all others about the same Proxy: the same
	// request, sent again, yields it again.
	Edge string
}

// edges are the Events of what d changes in the status of o's Proxy. It is pure.
// Nothing that lasts is an Event, only that it begins or ends.
func edges(o *Observation, d *Decision) []Event {
	if o.Finalizing {
		return slices.Concat(o.abandonEdge(d), o.stuckEdge(d))
	}
	return slices.Concat(o.lossEdge(d), o.instanceEdge(d), o.provisionedEdge(d), o.healthEdge(d))
}

// edge is an Event about a condition that is left. What it was, and since when,
// tells one edge from the next; a condition that stays True does not tell, and the
// version of the object does.
func (o *Observation) edge(kind, reason, message string, left, now metav1.Condition) []Event {
	of := []string{reason, string(left.Status), left.LastTransitionTime.UTC().Format(time.RFC3339), o.Proxy.Status.InstanceID, o.Instance.ID}
	if left.Status == metav1.ConditionTrue && now.Status == metav1.ConditionTrue {
		of = append(of, o.Proxy.ResourceVersion)
	}
	return []Event{{Type: kind, Reason: reason, Message: message, Edge: strings.Join(of, "/")}}
}

// end is an Event about the end of an instance, of which there is one: an instance
// that we replace is seen to go as well, maybe before our own word for it is in the
// status.
func (o *Observation) end(kind, reason, message string) []Event {
	return []Event{{Type: kind, Reason: reason, Message: message, Edge: "end/" + cmp.Or(o.Proxy.Status.InstanceID, o.Instance.ID)}}
}

// instanceEdge: an instance is there that the status did not know.
func (o *Observation) instanceEdge(d *Decision) []Event {
	before, id := o.Proxy.Status.InstanceID, d.Status.InstanceID
	if id == "" || id == before {
		return nil
	}
	made := Event{Type: corev1.EventTypeNormal, Reason: EventCreated, Message: o.instanceText() + " is created", Edge: "begin/" + id}
	switch {
	case o.Proxy.Spec.Mode == v1alpha1.ModeExternal:
		if before == "" {
			return nil // nobody made anything
		}
		made.Reason, made.Message = EventEndpointChanged, "the endpoint is now "+address(&d.Status)+"; it is probed afresh"
	case d.Instance == RemoveInstance:
		return nil // it goes at once, of which another Event tells
	case !v1alpha1.SpecHashKnown(o.Instance.SpecHash):
		made.Reason, made.Message = EventAdopted, o.instanceText()+" carries no hash of this release, and counts as what the spec asks for"
	}
	return []Event{made}
}

// lossEdge: the instance that the status speaks of is gone, or goes, and nobody
// here wanted that.
func (o *Observation) lossEdge(d *Decision) []Event {
	status, left := &o.Proxy.Status, o.previous(v1alpha1.ConditionProvisioned)
	if o.Proxy.Spec.Mode != v1alpha1.ModeManaged || status.InstanceID == "" || d.Instance == KeepInstance {
		return nil
	}
	if left.Reason == v1alpha1.ReasonReplacing || left.Reason == v1alpha1.ReasonInstanceTerminated {
		return nil
	}
	say := func(what string) []Event { return o.end(corev1.EventTypeWarning, EventInstanceTerminated, what) }
	switch {
	case !o.Instance.exists(), o.Instance.ID != status.InstanceID:
		return say(fmt.Sprintf("the instance %s (id %s) is gone; it is made anew", status.ProviderID, status.InstanceID))
	case o.Instance.Terminating && left.Status == metav1.ConditionTrue:
		return say(o.instanceText() + " is being deleted, and not because of its spec: it was evicted, or deleted by hand; another one follows")
	case o.Instance.State == InstanceEnded:
		return say(o.withFailure(o.instanceText() + " has ended; it is removed and made anew"))
	}
	return nil
}

// provisionedEdge: the Provisioned condition has another reason.
func (o *Observation) provisionedEdge(d *Decision) []Event {
	left, now := o.previous(v1alpha1.ConditionProvisioned), condOf(&d.Status, v1alpha1.ConditionProvisioned)
	if left.Reason == now.Reason {
		return nil
	}
	switch {
	case troubling(now.Reason):
		return o.edge(corev1.EventTypeWarning, now.Reason, now.Message, left, now)
	case now.Reason == v1alpha1.ReasonReplacementPending:
		return o.edge(corev1.EventTypeNormal, now.Reason, o.whatChanged()+": "+now.Message, left, now)
	case now.Reason == v1alpha1.ReasonReplacing && !o.Instance.Terminating:
		return o.end(corev1.EventTypeNormal, now.Reason, o.whatChanged()+": "+o.instanceText()+" goes, and another one follows")
	case troubling(left.Reason) && now.Status == metav1.ConditionTrue:
		return o.edge(corev1.EventTypeNormal, EventRecovered, left.Reason+" is over: "+now.Message, left, now)
	}
	return nil
}

// troubling are the reasons of Provisioned that somebody should look at.
func troubling(reason string) bool {
	switch reason {
	case v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonStockout, v1alpha1.ReasonPermanentError, v1alpha1.ReasonCloudInitError,
		v1alpha1.ReasonUnknownProvider, v1alpha1.ReasonCloudAdapterUnavailable, v1alpha1.ReasonProvisioningTimeout:
		return true
	}
	return false
}

// healthEdge: the verdict on an instance that serves has changed, or can no longer
// be had.
func (o *Observation) healthEdge(d *Decision) []Event {
	left, now := o.previous(v1alpha1.ConditionHealthy), condOf(&d.Status, v1alpha1.ConditionHealthy)
	if d.Status.IP == "" || left.Status == now.Status && left.Reason == now.Reason {
		return nil
	}
	flipped, why := left.Status != now.Status, strings.TrimSuffix(now.Reason+": "+now.Message, ": ")
	switch {
	case flipped && now.Status == metav1.ConditionFalse:
		return o.edge(corev1.EventTypeWarning, EventUnhealthy, why, left, now)
	case flipped && now.Status == metav1.ConditionTrue:
		return o.edge(corev1.EventTypeNormal, EventHealthy, now.Reason+" at "+address(&d.Status)+exitNote(&d.Status), left, now)
	case now.Reason == v1alpha1.ReasonProbeTargetDown && now.Status == metav1.ConditionTrue:
		return o.edge(corev1.EventTypeWarning, now.Reason, now.Message, left, now)
	case now.Reason == ReasonProbeMissing:
		return o.edge(corev1.EventTypeWarning, now.Reason, now.Message, left, now)
	case now.Status == metav1.ConditionUnknown && now.Reason != ReasonProbePending && now.Reason != v1alpha1.ReasonReplacing:
		return o.edge(corev1.EventTypeWarning, EventHealthUnknown, why, left, now)
	}
	return nil
}

// abandonEdge: the Proxy goes, and its VM may not.
func (o *Observation) abandonEdge(d *Decision) []Event {
	if !o.Cloud.Abandoned || !d.Finalized {
		return nil
	}
	status := &o.Proxy.Status
	return []Event{{Type: corev1.EventTypeWarning, Reason: EventAbandoned, Edge: EventAbandoned, Message: fmt.Sprintf(
		"the annotation %s lets the Proxy go without the cloud being asked: instance %s (%s, id %s) of provider %s may run on and cost money",
		v1alpha1.AnnotationAbandon, v1alpha1.InstanceName(o.Proxy.UID), cmp.Or(status.ProviderID, "never seen"), cmp.Or(status.InstanceID, "unknown"), o.Proxy.Spec.Provider)}}
}

// stuckEdge: the deletion takes longer than making an instance may. The status
// does not say so, since it must not change by itself; the Event is sent once.
func (o *Observation) stuckEdge(d *Decision) []Event {
	since := o.Proxy.DeletionTimestamp
	if since == nil || d.Finalized || o.Now.Sub(since.Time) <= o.Timing.ProvisioningDeadline {
		return nil
	}
	what := condOf(&d.Status, v1alpha1.ConditionProvisioned).Message
	switch {
	case o.Cloud.Problem != nil: // which the message names
	case o.Instance.exists():
		what += "; waiting for " + o.instanceText() + " to go"
	default:
		what += "; waiting for its other children to go"
	}
	return []Event{{Type: corev1.EventTypeWarning, Reason: EventDeletionStuck, Edge: EventDeletionStuck,
		Message: fmt.Sprintf("not gone %s after its deletion: %s", o.Timing.ProvisioningDeadline, what)}}
}
