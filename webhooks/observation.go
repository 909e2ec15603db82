package webhooks

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// Observation is everything that a decision rests on.
type Observation struct {
	// Proxy is the parent, with the status of the previous answer.
	Proxy *v1alpha1.Proxy
	// Finalizing: the Proxy is on its way out.
	Finalizing bool
	// Provider is the entry of the provider config that spec.provider names,
	// nil when there is none.
	Provider *Provider
	// CloudInit is the resolved user data.
	CloudInit CloudInit
	// Instance is the observed Pod, or the VM that the cloud adapter tells of.
	Instance Instance
	// Cloud is what else the adapter said; its zero value for Pods.
	Cloud CloudNews
	// Probe is the observed ProxyProbe, nil when there is none.
	Probe *v1alpha1.ProxyProbe
	// Strays are observed children that nobody of this release made.
	Strays []Stray
	// MayReplace: the replacement budget lets a running, outdated instance go.
	MayReplace bool
	// HoldsPlace: a replacement of this Proxy's instance was under way in that
	// budget before this observation, and may be over.
	HoldsPlace bool
	// Timing of polls and the deadline.
	Timing Timing
	// Now is the time of the decision.
	Now time.Time
}

// Timing says when to look again.
type Timing struct {
	// ProvisioningDeadline is how long an instance may take to run, and its
	// ProxyProbe to be there, before the status says that something is wrong; and
	// how long a replacement may take until it is Ready before it has failed.
	ProvisioningDeadline time.Duration
	// ProvisioningPoll, DriftPoll and DeletionPoll are the times to the next
	// look while an instance comes up, runs, or goes.
	ProvisioningPoll, DriftPoll, DeletionPoll time.Duration
	// QuotaRetry is the time to the next look while a quota or a zone is used up.
	QuotaRetry time.Duration
}

// trouble is why the wanted state of an instance cannot be told.
type trouble struct {
	reason, message string
}

// wanted is the hash of the instance that the spec asks for, or the trouble
// that hides it.
func (o *Observation) wanted() (hash string, why *trouble) {
	spec := &o.Proxy.Spec
	switch {
	case o.Provider == nil:
		return "", &trouble{v1alpha1.ReasonUnknownProvider, fmt.Sprintf(
			"the provider config has no provider %q: add it under that name and restart webhooks, or delete this Proxy and create it with another spec.provider", spec.Provider)}
	case o.otherKind():
		return "", &trouble{v1alpha1.ReasonUnknownProvider, fmt.Sprintf(
			"provider %q is of another type than when it made %s: give the new entry of the provider config a name of its own", spec.Provider, o.Instance.ProviderID)}
	case o.CloudInit.Problem != "":
		return "", &trouble{v1alpha1.ReasonCloudInitError, o.CloudInit.Problem}
	}
	if o.Provider.outside() {
		if err := o.Provider.Cloud.Check(o.placement(), o.CloudInit.Content); err != nil {
			return "", &trouble{v1alpha1.ReasonPermanentError, strings.ReplaceAll(err.Error(), "\n", "; ")}
		}
	}
	return v1alpha1.SpecHash(spec.Placement, o.CloudInit.Content, o.Proxy.EffectivePort()), nil
}

// madeWith is the hash that the instance counts as made with: its own, or the
// one that it was adopted with. An instance that carries no hash, or one of
// another release, is adopted with the wanted hash of the moment it is first
// seen; status remembers that hash together with the instance's id.
func (o *Observation) madeWith(wanted string) string {
	in, status := o.Instance, o.Proxy.Status
	switch {
	case v1alpha1.SpecHashKnown(in.SpecHash):
		return in.SpecHash
	case status.InstanceID == in.ID && v1alpha1.SpecHashKnown(status.SpecHash):
		return status.SpecHash
	}
	return wanted
}

// outdated reports whether the instance was made from another spec. One that has
// no id yet cannot be told from its successor, and is looked at when it has one.
func (o *Observation) outdated(wanted string) bool {
	return o.Instance.ID != "" && o.madeWith(wanted) != wanted
}

// wantsReplacement reports whether the decision depends on MayReplace: a
// serving instance is outdated. An instance that serves nobody yet is replaced
// without asking.
func (o *Observation) wantsReplacement() bool {
	if o.Finalizing || o.Proxy.Spec.Mode != v1alpha1.ModeManaged || o.Cloud.Problem != nil || !o.Instance.serves() {
		return false
	}
	hash, why := o.wanted()
	return why == nil && o.outdated(hash)
}

// previous is the condition of that type in the status of the previous answer,
// the zero condition when there is none.
func (o *Observation) previous(conditionType string) metav1.Condition {
	if c := meta.FindStatusCondition(o.Proxy.Status.Conditions, conditionType); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// replacementUnderWay reports whether a replacement that was ours to decide is
// under way. The status alone does not tell: one that Metacontroller has just
// written may be missing in the next request.
func (o *Observation) replacementUnderWay() bool {
	return o.HoldsPlace || replacementUnderWay(&o.Proxy.Status)
}

// replacementUnderWay reports whether the previous answer began, or carried on,
// a replacement that was ours to decide and whose new instance has no verdict
// yet.
func replacementUnderWay(status *v1alpha1.ProxyStatus) bool {
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionHealthy)
	return c != nil && c.Status == metav1.ConditionUnknown && c.Reason == v1alpha1.ReasonReplacing
}
