package v1alpha1

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of a Proxy, in the order in which status lists them.
const (
	// ConditionProvisioned: the instance that the spec asks for is running.
	ConditionProvisioned = "Provisioned"
	// ConditionHealthy: the prober's verdict on that instance.
	ConditionHealthy = "Healthy"
)

// Reasons of the Provisioned condition.
const (
	ReasonProvisioning            = "Provisioning"
	ReasonCreated                 = "Created"
	ReasonExternalEndpoint        = "ExternalEndpoint"
	ReasonReplacing               = "Replacing"
	ReasonReplacementPending      = "ReplacementPending"
	ReasonDeleting                = "Deleting"
	ReasonQuotaExceeded           = "QuotaExceeded"
	ReasonStockout                = "Stockout"
	ReasonPermanentError          = "PermanentError"
	ReasonCloudInitError          = "CloudInitError"
	ReasonCloudAdapterUnavailable = "CloudAdapterUnavailable"
	ReasonInstanceTerminated      = "InstanceTerminated"
	ReasonProvisioningTimeout     = "ProvisioningTimeout"
	ReasonUnknownProvider         = "UnknownProvider"
)

// ReasonProbeTargetDown is a reason of the Healthy condition and of a
// ProxyProbe's status: probes fail as they would through any proxy, because the
// probe target is down or much of the fleet fails at once. Such failures are
// suppressed, and the verdict stays. No other process depends on the prober's
// further reasons.
const ReasonProbeTargetDown = "ProbeTargetDown"

// SetCondition returns conditions with c in place of an older condition of its
// type. The transition time is now, in whole seconds as the API server stores it,
// if the status differs from the older one's, and stays otherwise: a status that
// changes with the clock alone would make Metacontroller reconcile for ever. The
// argument is not changed.
func SetCondition(conditions []metav1.Condition, c metav1.Condition, now time.Time) []metav1.Condition {
	out := slices.Clone(conditions)
	c.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
	if old := meta.FindStatusCondition(out, c.Type); old != nil && old.LastTransitionTime.IsZero() {
		old.LastTransitionTime = c.LastTransitionTime
	}
	meta.SetStatusCondition(&out, c)
	return out
}
