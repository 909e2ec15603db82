package witness

import (
	"cmp"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// WantedOf converts a Proxy's spec. Its user data must be inline, since the hash depends
// on it.
func WantedOf(p *v1alpha1.Proxy) *history.Wanted {
	health := p.Spec.HealthCheck.OrDefault()
	w := &history.Wanted{
		Mode: string(p.Spec.Mode), Provider: p.Spec.Provider, Port: p.EffectivePort(), MaxLeases: p.MaxLeasesOrDefault(),
		Interval: health.Interval.Duration, Timeout: health.Timeout.Duration,
		FailureThreshold: health.FailureThreshold, SuccessThreshold: health.SuccessThreshold,
	}
	if e := p.Spec.Endpoint; e != nil {
		w.Endpoint = endpoint(e.Host, e.Port)
		return w
	}
	userData := ""
	if p.Spec.CloudInit != nil {
		userData = p.Spec.CloudInit.Inline
	}
	w.SpecHash = v1alpha1.SpecHash(p.Spec.Placement, userData, p.EffectivePort())
	if p.Spec.Placement != nil {
		w.Zone = p.Spec.Placement.Zone
	}
	return w
}

// object converts an object for the history.
func object(u *unstructured.Unstructured) (history.Object, error) {
	o := history.Object{
		Kind: u.GetKind(), Name: u.GetNamespace() + "/" + u.GetName(), UID: string(u.GetUID()), Generation: u.GetGeneration(),
		ResourceVersion: u.GetResourceVersion(), Finalizers: u.GetFinalizers(), Deleting: u.GetDeletionTimestamp() != nil,
	}
	if owner := metav1.GetControllerOf(u); owner != nil {
		o.OwnerUID = string(owner.UID)
	}
	switch o.Kind {
	case "Proxy":
		return read(u, o, fromProxy)
	case "ProxyProbe":
		return read(u, o, fromProbe)
	}
	return read(u, o, fromPod)
}

// read decodes an object and adds its fields to o.
func read[T any](u *unstructured.Unstructured, o history.Object, add func(*T, *history.Object)) (history.Object, error) {
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &typed); err != nil {
		return o, fmt.Errorf("%s %s: %w", o.Kind, o.Name, err)
	}
	add(&typed, &o)
	return o, nil
}

func fromProxy(p *v1alpha1.Proxy, o *history.Object) {
	o.Wanted = WantedOf(p)
	o.Phase, o.InstanceID, o.ProviderID = string(p.Status.Phase), p.Status.InstanceID, p.Status.ProviderID
	o.SpecHash, o.ObservedGeneration = p.Status.SpecHash, p.Status.ObservedGeneration
	o.Endpoint = endpoint(p.Status.IP, p.Status.Port)
	for _, c := range p.Status.Conditions {
		seen := history.Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason}
		if c.Status != metav1.ConditionTrue {
			seen.Message = c.Message
		}
		o.Conditions = append(o.Conditions, seen)
	}
}

func fromProbe(p *v1alpha1.ProxyProbe, o *history.Object) {
	o.Endpoint = endpoint(p.Spec.Host, p.Spec.Port)
	o.Phase, o.Reason, o.InstanceID = string(p.Status.Verdict), p.Status.Reason, p.Status.InstanceID
	o.ObservedGeneration = p.Status.ObservedGeneration
}

func fromPod(p *corev1.Pod, o *history.Object) {
	o.OwnerUID = cmp.Or(p.Labels[v1alpha1.LabelUID], o.OwnerUID)
	o.Phase, o.Endpoint, o.SpecHash = string(p.Status.Phase), p.Status.PodIP, p.Annotations[v1alpha1.AnnotationSpecHash]
	for _, c := range p.Status.ContainerStatuses {
		o.Restarts += c.RestartCount
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			o.Conditions = append(o.Conditions, history.Condition{Type: string(c.Type), Status: string(c.Status), Reason: c.Reason})
		}
	}
}

// endpoint is host:port, "" without a host.
func endpoint(host string, port int32) string {
	if host == "" {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
