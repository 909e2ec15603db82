// Package fleet watches Proxy and ProxyProbe objects and the probers' Lease objects,
// and decides which proxies are leasable.
//
// Only a Proxy's status makes it Ready. Its ProxyProbe, which the prober writes, has
// a verdict before the hook sets the status from it. A verdict against the instance
// applies at once, so that no client gets a dead proxy while hooks are slow or down.
package fleet

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Proxy is the part of a Proxy object that discovery needs. It is made once per
// event and immutable, so that requests can share it.
type Proxy struct {
	// Candidate identifies the proxy to lease stores.
	lease.Candidate
	// Namespace and Name of the object.
	Namespace, Name string
	// Attributes that crawlers select on.
	Attributes map[string]string
	// Phase of the status, or that of a newer verdict: see VerdictAhead.
	Phase v1alpha1.Phase
	// Healthy is the prober's verdict, which may be stale.
	Healthy bool
	// Reason of the first condition that is not True, else of Healthy.
	Reason string
	// Host and Port of the running instance; "" and 0 when there is none.
	Host string
	Port int32
	// CredentialsSecret is the name of a Secret in Namespace, or "".
	CredentialsSecret string
	// Generation of the spec, and that of the status.
	Generation, ObservedGeneration int64
	// Deleting: the object has a deletionTimestamp.
	Deleting bool
	// VerdictAhead: the status is Ready, and the ProxyProbe has a newer verdict
	// against the same instance. Phase, Healthy and Reason are those that the hook
	// will set.
	VerdictAhead bool

	byStatus *Proxy    // the proxy without that verdict
	checked  time.Time // the probe that the status rests on
}

// FromAPI converts an object. It keeps no reference to it.
func FromAPI(p *v1alpha1.Proxy) *Proxy {
	out := &Proxy{
		Candidate: lease.Candidate{
			Instance:      lease.Instance{ProxyUID: string(p.UID), ID: p.Status.InstanceID},
			Proxy:         key(p.Namespace, p.Name),
			MaxLeases:     int(p.MaxLeasesOrDefault()),
			LatencyMillis: lease.UnknownLatency,
			Scheme:        string(p.EffectiveScheme()),
		},
		Namespace:          p.Namespace,
		Name:               p.Name,
		Attributes:         make(map[string]string, len(p.Spec.Attributes)),
		Phase:              p.Status.Phase,
		Healthy:            meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionHealthy),
		Reason:             reason(p.Status.Conditions),
		Host:               p.Status.IP,
		Port:               p.Status.Port,
		Generation:         p.Generation,
		ObservedGeneration: p.Status.ObservedGeneration,
		Deleting:           p.DeletionTimestamp != nil,
	}
	if p.Status.LastHealthCheckTime != nil {
		out.checked = p.Status.LastHealthCheckTime.Time
	}
	if p.Status.LatencyMillis != nil {
		out.LatencyMillis = *p.Status.LatencyMillis
	}
	if p.Spec.CredentialsRef != nil {
		out.CredentialsSecret = p.Spec.CredentialsRef.Name
	}
	for k, v := range p.Spec.Attributes {
		out.Attributes[k] = string(v)
	}
	return out
}

func key(namespace, name string) string { return namespace + "/" + name }

func reason(conditions []metav1.Condition) string {
	for _, c := range conditions {
		if c.Status != metav1.ConditionTrue {
			return c.Reason
		}
	}
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionHealthy); c != nil {
		return c.Reason
	}
	return ""
}

// Matches reports whether the proxy's attributes contain the whole selector.
func (p *Proxy) Matches(selector map[string]string) bool {
	return lease.HasAttributes(p.Attributes, selector)
}

// compareKeys orders by "namespace/name".
func compareKeys(p *Proxy, k string) int { return strings.Compare(p.Candidate.Proxy, k) }
