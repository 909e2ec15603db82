// Package proxy decides about one Proxy. It is pure: Decide turns an Observation
// into a Decision, and Transitions lists the Events of what the decision changes.
// The package imports the API types and reads no clock.
//
// Unknown never means delete. Metacontroller deletes a child that an answer does
// not list. So while the wanted state is not known, every observed child is
// listed again.
package proxy

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// Observation is all the input of a decision. The hooks build it in one place.
type Observation struct {
	// Proxy is the parent, with the status of the previous answer.
	Proxy *v1alpha1.Proxy
	// Finalizing: the request is a finalize request.
	Finalizing bool
	// Provider is the provider that spec.provider names, nil when the provider
	// config has none of that name.
	Provider *Provider
	// CloudInit is the resolved user data.
	CloudInit CloudInit
	// Instance is the observed Pod, or the VM that the cloud adapter reports.
	Instance Instance
	// Wanted is the instance that the spec asks for; see Want.
	Wanted Wanted
	// Adapter is the rest of the cloud adapter's reply; its zero value for Pods.
	Adapter AdapterReply
	// Probe is the observed ProxyProbe, nil when there is none.
	Probe *v1alpha1.ProxyProbe
	// Strays are observed children under names that this release does not give.
	Strays []Stray
	// MayReplace: the replacement budget permits the replacement of a running,
	// outdated instance.
	MayReplace bool
	// InBudget: before this observation the budget counted a replacement of this
	// Proxy's instance. It may be complete by now.
	InBudget bool
	// Timing of polls and the deadline.
	Timing Timing
	// Now is the time of the decision.
	Now time.Time
}

// Provider is what a decision depends on of a provider.
type Provider struct {
	// Cloud validates the provider's VMs; nil when its instances are Pods.
	Cloud Cloud
}

// Cloud is a provider type whose instances are VMs. The cloud adapter creates
// them.
type Cloud interface {
	// Check returns why no VM can be created with that placement and user data,
	// whatever the cloud's API answers. The error contains no user data.
	Check(p v1alpha1.Placement, userData string) error
}

// IsCloud reports whether the provider's instances are VMs. p may be nil.
func (p *Provider) IsCloud() bool { return p != nil && p.Cloud != nil }

// CloudInit is the user data of a Proxy, or the reason why it is not known.
type CloudInit struct {
	// Content is the user data. It may come from a Secret: it goes into the
	// spec hash and into requests to the cloud adapter, and nowhere else.
	Content string
	// Problem states what is wrong and what to do; empty when nothing is.
	Problem string
}

// AdapterReply is what the cloud adapter replied beside the instance.
type AdapterReply struct {
	// Blocked is why the state of the VM is unknown; nil when the adapter reported
	// it or received no request.
	Blocked *BlockReason
	// Failure is why the wanted VM does not exist yet; nil when none is reported.
	Failure *adapter.Failure
	// Abandoned: the Proxy's annotation makes it go without a request to the cloud.
	Abandoned bool
}

// Stray is an observed child under a name that this release does not give.
type Stray struct {
	// Object has its apiVersion, kind, namespace and name. It has the spec too where
	// Metacontroller would remove fields that are missing.
	Object *unstructured.Unstructured
	// Terminating: its deletion is under way.
	Terminating bool
}

// Timing holds the periods after which Metacontroller calls the hook again, and
// the deadline.
type Timing struct {
	// ProvisioningDeadline is the timeout for an instance to run, for its ProxyProbe
	// to exist, and for a replacement to become Ready.
	ProvisioningDeadline time.Duration
	// ProvisioningPoll, DriftPoll and RemovalPoll apply while an instance is being
	// created, runs, or is being removed.
	ProvisioningPoll, DriftPoll, RemovalPoll time.Duration
	// BudgetPoll applies while a replacement waits for the budget, and in the answer
	// that completes a replacement.
	BudgetPoll time.Duration
	// QuotaRetry applies while a quota or a zone's capacity is exhausted.
	QuotaRetry time.Duration
}

// BlockReason is why the wanted state, or the state of a VM, is unknown: the reason
// of the Provisioned condition, and its message, which states what to do.
type BlockReason struct{ Reason, Message string }

// Wanted is the instance that a spec asks for.
type Wanted struct {
	// Hash is its spec hash, empty when Blocked is set.
	Hash string
	// Blocked is why the hash is unknown, or why such an instance cannot exist.
	Blocked *BlockReason
}

// Want computes Wanted from the spec, the provider, the user data and the kind of
// the instance.
func (o *Observation) Want() Wanted {
	spec := &o.Proxy.Spec
	switch {
	case spec.Mode != v1alpha1.ModeManaged:
		return Wanted{}
	case o.Provider == nil:
		return blocked(v1alpha1.ReasonUnknownProvider,
			"the provider config has no provider %q: add it under that name and restart webhooks, or delete this Proxy and create it with another spec.provider", spec.Provider)
	case o.Instance.Exists() && o.Instance.VM != o.Provider.IsCloud():
		return blocked(v1alpha1.ReasonUnknownProvider,
			"provider %q was of another type when it created %s: give the new provider a name of its own in the provider config", spec.Provider, o.Instance.ProviderID)
	case o.CloudInit.Problem != "":
		return blocked(v1alpha1.ReasonCloudInitError, "%s", o.CloudInit.Problem)
	}
	if o.Provider.IsCloud() {
		if err := o.Provider.Cloud.Check(o.placement(), o.CloudInit.Content); err != nil {
			return blocked(v1alpha1.ReasonPermanentError, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	return Wanted{Hash: v1alpha1.SpecHash(spec.Placement, o.CloudInit.Content, o.Proxy.EffectivePort())}
}

func blocked(reason, format string, args ...any) Wanted {
	return Wanted{Blocked: &BlockReason{reason, fmt.Sprintf(format, args...)}}
}

// instanceHash is the hash that the instance counts as created with: its own, or
// the one that it was adopted with. An instance that carries no hash, or one in
// an unknown format, is adopted with the wanted hash when it is first observed;
// status keeps that hash together with the instance's id. Without either it is
// fallback.
func (o *Observation) instanceHash(fallback string) string {
	in, status := o.Instance, o.Proxy.Status
	switch {
	case v1alpha1.SpecHashKnown(in.SpecHash):
		return in.SpecHash
	case status.InstanceID == in.ID && v1alpha1.SpecHashKnown(status.SpecHash):
		return status.SpecHash
	}
	return fallback
}

// carriedHash is the hash that the status has of the observed instance, empty
// when the status is about another one.
func (o *Observation) carriedHash() string {
	if o.Proxy.Status.InstanceID == o.Instance.ID {
		return o.Proxy.Status.SpecHash
	}
	return ""
}

// outdated reports whether the instance was created from another spec. An
// instance without an id is indistinguishable from its successor, so it counts as
// current until it has one.
func (o *Observation) outdated() bool {
	return o.Instance.ID != "" && o.instanceHash(o.Wanted.Hash) != o.Wanted.Hash
}

// AsksBudget reports whether the decision depends on MayReplace: a serving
// instance is outdated. An instance that does not serve yet is replaced without
// the budget.
func (o *Observation) AsksBudget() bool {
	return !o.Finalizing && o.Proxy.Spec.Mode == v1alpha1.ModeManaged && o.Adapter.Blocked == nil &&
		o.Instance.serves() && o.Wanted.Blocked == nil && o.outdated()
}

// previous is the condition of that type in the status of the previous answer,
// the zero condition when there is none.
func (o *Observation) previous(conditionType string) metav1.Condition {
	return conditionOf(&o.Proxy.Status, conditionType)
}

func conditionOf(s *v1alpha1.ProxyStatus, conditionType string) metav1.Condition {
	if c := meta.FindStatusCondition(s.Conditions, conditionType); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// ReplacementUnderWay reports whether a voluntary replacement is under way: the
// status marks one whose new instance has no verdict yet, or it is InBudget. The
// status alone may be stale, without what Metacontroller has just written.
func (o *Observation) ReplacementUnderWay() bool {
	c := o.previous(v1alpha1.ConditionHealthy)
	return o.InBudget || c.Status == metav1.ConditionUnknown && c.Reason == v1alpha1.ReasonReplacing
}

func (o *Observation) placement() (p v1alpha1.Placement) {
	if o.Proxy.Spec.Placement != nil {
		p = *o.Proxy.Spec.Placement
	}
	return p
}
