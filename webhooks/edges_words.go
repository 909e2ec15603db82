package webhooks

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// whatChanged says why the instance is outdated, as far as that is known: of its
// old spec only the port and a hash are left.
func (o *Observation) whatChanged() string {
	spec, port, was := &o.Proxy.Spec, o.Proxy.EffectivePort(), o.portOf(o.Instance)
	const rest = "spec.placement or spec.cloudInit has changed"
	switch {
	case was != port && v1alpha1.SpecHash(spec.Placement, o.CloudInit.Content, was) == o.madeWith(""):
		return fmt.Sprintf("spec.port has changed from %d to %d", was, port)
	case was != port:
		return fmt.Sprintf("spec.port has changed from %d to %d, and %s", was, port, rest)
	case spec.CloudInit == nil || spec.CloudInit.SecretRef == nil:
		return rest
	case o.previous(v1alpha1.ConditionProvisioned).Reason == v1alpha1.ReasonReplacementPending:
		return "spec.placement, spec.cloudInit or the content of its Secret has changed" // it was said then
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

func condOf(s *v1alpha1.ProxyStatus, conditionType string) metav1.Condition {
	if c := meta.FindStatusCondition(s.Conditions, conditionType); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func address(s *v1alpha1.ProxyStatus) string {
	if strings.Contains(s.IP, ":") {
		return fmt.Sprintf("[%s]:%d", s.IP, s.Port)
	}
	return fmt.Sprintf("%s:%d", s.IP, s.Port)
}

func exitNote(s *v1alpha1.ProxyStatus) string {
	if s.ExitIP == "" {
		return ""
	}
	return ", targets see " + s.ExitIP
}
