package webhooks

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// probeOf is the spec of the ProxyProbe that watches in.
func (o *Observation) probeOf(in Instance) *v1alpha1.ProxyProbeSpec {
	hc := o.Proxy.Spec.HealthCheck.OrDefault()
	spec := &v1alpha1.ProxyProbeSpec{
		InstanceID:     in.ID,
		Host:           in.IP,
		Port:           o.portOf(in),
		HealthCheck:    &hc,
		CredentialsRef: o.Proxy.Spec.CredentialsRef.DeepCopy(),
	}
	// http is the zero value: writing it out would rewrite every ProxyProbe.
	if scheme := o.Proxy.EffectiveScheme(); scheme != v1alpha1.SchemeHTTP {
		spec.Scheme = scheme
	}
	return spec
}

// probeChild is the ProxyProbe of proxy, which has its name.
func probeChild(proxy *v1alpha1.Proxy, spec *v1alpha1.ProxyProbeSpec) (*unstructured.Unstructured, error) {
	child, err := toChild(&v1alpha1.ProxyProbe{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "ProxyProbe"},
		ObjectMeta: metav1.ObjectMeta{Name: proxy.Name, Namespace: proxy.Namespace},
		Spec:       *spec,
	})
	if err != nil || spec.HealthCheck == nil {
		return child, err
	}
	for field, d := range map[string]time.Duration{"interval": spec.HealthCheck.Interval.Duration, "timeout": spec.HealthCheck.Timeout.Duration} {
		if err := unstructured.SetNestedField(child.Object, durationText(d), "spec", "healthCheck", field); err != nil {
			return nil, fmt.Errorf("set healthCheck.%s: %w", field, err)
		}
	}
	return child, nil
}

// durationText writes a duration as the CRD's pattern wants it, in whole units:
// Go's own form of 1500ms is 1.5s, which the API server refuses.
func durationText(d time.Duration) string {
	if d%time.Second == 0 {
		return d.String()
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}
