// Package proxytest builds the Proxies, Pods, VMs and ProxyProbes that tests of
// the hooks have in common.
package proxytest

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/providers"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/squid"
)

const (
	// PodProvider and CloudProvider are the providers of Managed and Cloud.
	PodProvider, CloudProvider = "pods", "gcp-eu"
	// PodID and VMID are the instance ids of Pod and RunningVM.
	PodID, VMID = "pod-uid-1", "4711000000000000001"
	// OtherHash is the hash of another spec.
	OtherHash = "v1-0123456789abcdef0123456789abcdef01234567"
)

// Noon is the time of tests that set no other.
func Noon() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) }

// Template is the Pod template of PodProvider.
func Template() *squid.Template {
	return &squid.Template{
		Provider:        PodProvider,
		Image:           "registry.example.com/squid:5.7",
		ImagePullPolicy: corev1.PullIfNotPresent,
		CPU:             resource.MustParse("100m"),
		Memory:          resource.MustParse("128Mi"),
		AllowClients:    []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		AllowPorts:      []int{80, 443},
	}
}

// GCP is the config of CloudProvider.
func GCP() *providers.GCP {
	cfg := &providers.GCP{Project: "demo"}
	if err := cfg.Complete(); err != nil {
		panic(err)
	}
	return cfg
}

// Managed is a Proxy whose instance is a Pod.
func Managed() *v1alpha1.Proxy {
	hc := (*v1alpha1.HealthCheck)(nil).OrDefault()
	return &v1alpha1.Proxy{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "Proxy"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "fra-1", Namespace: "crawl", UID: "11111111-2222-3333-4444-555555555555", Generation: 3,
			CreationTimestamp: metav1.NewTime(Noon().Add(-time.Hour)),
		},
		Spec: v1alpha1.ProxySpec{Mode: v1alpha1.ModeManaged, Provider: PodProvider, Port: 3128, HealthCheck: &hc},
	}
}

// External is a Proxy with an endpoint.
func External() *v1alpha1.Proxy {
	p := Managed()
	p.Spec.Mode, p.Spec.Provider, p.Spec.Port = v1alpha1.ModeExternal, "", 0
	p.Spec.Endpoint = &v1alpha1.Endpoint{Host: "proxy.vendor.example", Port: 8080}
	return p
}

// Cloud is a Proxy whose instance is a VM.
func Cloud() *v1alpha1.Proxy {
	p := Managed()
	p.Finalizers = []string{metacontroller.Finalizer}
	p.Spec.Provider = CloudProvider
	p.Spec.Placement = &v1alpha1.Placement{Zone: "europe-west1-b", MachineType: "e2-micro", Image: "projects/demo/global/images/squid-1"}
	return p
}

// SecretRef is Managed with cloud-init from a Secret.
func SecretRef() *v1alpha1.Proxy {
	p := Managed()
	p.Spec.CloudInit = &v1alpha1.CloudInit{SecretRef: &v1alpha1.SecretKeyRef{Name: "boot", Key: "user-data"}}
	return p
}

// Hash is the spec hash that p asks for, with inline cloud-init.
func Hash(p *v1alpha1.Proxy) string {
	content := ""
	if p.Spec.CloudInit != nil {
		content = p.Spec.CloudInit.Inline
	}
	return v1alpha1.SpecHash(p.Spec.Placement, content, p.EffectivePort())
}

// Probe is a ProxyProbe with a verdict about that instance.
func Probe(instanceID string, v v1alpha1.Verdict) *v1alpha1.ProxyProbe {
	latency, last := int64(42), metav1.NewTime(Noon().Add(-30*time.Second))
	return &v1alpha1.ProxyProbe{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "ProxyProbe"},
		ObjectMeta: metav1.ObjectMeta{Name: "fra-1", Namespace: "crawl", UID: "probe-uid"},
		Spec:       v1alpha1.ProxyProbeSpec{InstanceID: instanceID, Host: "10.1.2.3", Port: 3128},
		Status: v1alpha1.ProxyProbeStatus{
			InstanceID: instanceID, Verdict: v, Reason: "Probe" + string(v), Message: "what the prober saw",
			LatencyMillis: &latency, LastProbeTime: &last, LastTransitionTime: &last, ExitIP: "198.51.100.7",
		},
	}
}

// SetCondition gives p a condition that changed to its status at that time.
func SetCondition(p *v1alpha1.Proxy, conditionType string, s metav1.ConditionStatus, reason string, at time.Time) *v1alpha1.Proxy {
	meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{Type: conditionType, Status: s, Reason: reason, Message: "before", LastTransitionTime: metav1.NewTime(at)})
	return p
}

// Pod is the Pod that the API server has for p.
func Pod(t testing.TB, p *v1alpha1.Proxy, phase corev1.PodPhase, ip string) *corev1.Pod {
	t.Helper()
	b, err := json.Marshal(Template().Pod(p, Hash(p)))
	require.NoError(t, err)
	var pod corev1.Pod
	require.NoError(t, json.Unmarshal(b, &pod))
	pod.UID, pod.CreationTimestamp = PodID, metav1.NewTime(Noon().Add(-time.Minute))
	pod.Status = corev1.PodStatus{Phase: phase, PodIP: ip}
	return &pod
}

// RunningVM is the VM of Cloud, up to date.
func RunningVM() *adapter.Instance {
	created := Noon().Add(-time.Minute)
	return &adapter.Instance{
		State: adapter.StateRunning, Action: adapter.ActionNone, IP: "203.0.113.7", Port: 3128,
		ProviderID: "zones/europe-west1-b/instances/" + v1alpha1.InstanceName(Managed().UID), InstanceID: VMID,
		SpecHash: Hash(Cloud()), CreatedAt: &created,
	}
}

// VM is RunningVM in another state.
func VM(state adapter.State) *adapter.Instance {
	vm := RunningVM()
	if vm.State = state; state != adapter.StateRunning {
		vm.IP = ""
	}
	return vm
}

// ServedBy gives p the status of a Ready Proxy that vm serves.
func ServedBy(p *v1alpha1.Proxy, vm *adapter.Instance) *v1alpha1.Proxy {
	SetCondition(p, v1alpha1.ConditionProvisioned, metav1.ConditionTrue, v1alpha1.ReasonCreated, Noon().Add(-time.Minute))
	SetCondition(p, v1alpha1.ConditionHealthy, metav1.ConditionTrue, "ProbeSucceeded", Noon().Add(-time.Minute))
	s := &p.Status
	s.Phase, s.ObservedGeneration = v1alpha1.PhaseReady, p.Generation
	s.IP, s.Port, s.ProviderID, s.InstanceID, s.SpecHash = vm.IP, vm.Port, vm.ProviderID, vm.InstanceID, vm.SpecHash
	return p
}
