package v1alpha1

import (
	"slices"
	"time"

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

// ReasonProbeTargetDown, of the Healthy condition and of a ProxyProbe's status:
// probes fail as they would through any proxy, because the target is down or much
// of the fleet fails at once. Such failures do not count, and the verdict is the
// one from before. The prober has many other reasons, which nobody else has to
// know.
const ReasonProbeTargetDown = "ProbeTargetDown"

// SetCondition returns conditions with c in them, in place of an older one of
// its type. The transition time is now (whole seconds, as the API stores it)
// when the status differs from the older one's, and stays otherwise, so that
// the same facts give the same bytes at any time. The argument is not
// changed.
func SetCondition(conditions []metav1.Condition, c metav1.Condition, now time.Time) []metav1.Condition {
	out := slices.Clone(conditions)
	c.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
	i := slices.IndexFunc(out, func(o metav1.Condition) bool { return o.Type == c.Type })
	if i < 0 {
		return append(out, c)
	}
	if out[i].Status == c.Status && !out[i].LastTransitionTime.IsZero() {
		c.LastTransitionTime = out[i].LastTransitionTime
	}
	out[i] = c
	return out
}

// FindCondition returns the condition of that type, nil when there is none.
func FindCondition(conditions []metav1.Condition, conditionType string) *metav1.Condition {
	i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == conditionType })
	if i < 0 {
		return nil
	}
	return &conditions[i]
}

// ConditionTrue reports whether the condition of that type is True.
func ConditionTrue(conditions []metav1.Condition, conditionType string) bool {
	c := FindCondition(conditions, conditionType)
	return c != nil && c.Status == metav1.ConditionTrue
}
