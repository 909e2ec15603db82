// Package fleet watches the Proxy and ProxyProbe objects and the prober's Lease
// objects, and says which proxies may be leased.
//
// A Proxy's status says which are Ready, and nothing else does. Its ProxyProbe, which
// the prober writes, is known before the status that the hook makes of it, and is
// believed where it says that an instance is not Healthy, so that nobody gets a dead
// proxy while hooks are slow or away.
package fleet

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Proxy is what discovery needs of one Proxy object. It is made once per event
// and never changed, so that any number of requests can share it.
type Proxy struct {
	// Candidate identifies the proxy to lease stores.
	lease.Candidate
	// Namespace and Name of the object.
	Namespace, Name string
	// Attributes that crawlers select on.
	Attributes map[string]string
	// Phase of the status, or the one that the status is about to be in: see Ahead.
	Phase v1alpha1.Phase
	// Healthy is the prober's verdict, fresh or not.
	Healthy bool
	// Reason of the first condition that is not True, else of Healthy.
	Reason string
	// Host and Port of the running instance; "" and 0 when there is none.
	Host string
	Port int32
	// Scheme of the proxy's URL, http or https.
	Scheme v1alpha1.Scheme
	// CredentialsSecret is the name of a Secret in Namespace, or "".
	CredentialsSecret string
	// Generation of the spec, and the one that the status is about.
	Generation, ObservedGeneration int64
	// Deleting: the object is on its way out.
	Deleting bool
	// Ahead: the status says Ready, and the ProxyProbe says otherwise of the same
	// instance. Phase, Healthy and Reason are what the hook will make of it.
	Ahead bool

	told    *Proxy    // the proxy by its status alone, where Ahead
	checked time.Time // the probe that the status rests on
}

// FromAPI makes the entry for one object. It keeps no reference to it.
func FromAPI(p *v1alpha1.Proxy) *Proxy {
	out := &Proxy{
		Candidate: lease.Candidate{
			Instance:      lease.Instance{ProxyUID: string(p.UID), ID: p.Status.InstanceID},
			Proxy:         key(p.Namespace, p.Name),
			MaxLeases:     int(p.MaxLeasesOrDefault()),
			LatencyMillis: lease.UnknownLatency,
		},
		Namespace:          p.Namespace,
		Name:               p.Name,
		Attributes:         make(map[string]string, len(p.Spec.Attributes)),
		Phase:              p.Status.Phase,
		Healthy:            meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionHealthy),
		Reason:             reason(p.Status.Conditions),
		Host:               p.Status.IP,
		Port:               p.Status.Port,
		Scheme:             p.EffectiveScheme(),
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

// Matches reports whether the proxy has every attribute of the selector with
// the same value. An empty selector matches all.
func (p *Proxy) Matches(selector map[string]string) bool {
	return lease.HasAttributes(p.Attributes, selector)
}

// compareKeys orders by "namespace/name".
func compareKeys(p *Proxy, k string) int { return strings.Compare(p.Candidate.Proxy, k) }
