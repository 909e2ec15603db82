package webhooks

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

// world is one Proxy with its children, as the API server would hold them. It
// does what Metacontroller, a kubelet and the prober do, one step at a time.
type world struct {
	proxy      *v1alpha1.Proxy
	pod        *corev1.Pod
	probe      *v1alpha1.ProxyProbe
	cloud      *fakeAdapter     // holds the VM; nil for Pods
	secrets    []*corev1.Secret // related ones, as Metacontroller sends them
	finalizing bool
	gone       bool
	broken     bool   // the prober finds it unhealthy
	pods       int    // how many were made
	answer     []byte // the last one
}

// sync calls the hook and applies the answer as Metacontroller does under
// OnDelete for Pods and InPlace for ProxyProbes.
func (w *world) sync(t *testing.T, h *Hooks) {
	t.Helper()
	r := request{proxy: w.proxy, secrets: w.secrets, finalizing: w.finalizing}
	if w.pod != nil {
		r.pods = append(r.pods, w.pod)
	}
	if w.probe != nil {
		r.probes = append(r.probes, w.probe)
	}
	hook := "sync"
	if w.finalizing {
		hook = "finalize"
	}
	var resp metacontroller.Response
	w.answer = answerTo(t, h, hook, r.body(t))
	require.NoError(t, json.Unmarshal(w.answer, &resp))
	w.gone = resp.Finalized
	w.proxy.Status = v1alpha1.ProxyStatus{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(resp.Status, &w.proxy.Status))
	w.applyChildren(t, &resp)
}

func (w *world) applyChildren(t *testing.T, resp *metacontroller.Response) {
	t.Helper()
	var pod, probe []byte
	for _, c := range resp.Children {
		switch c.GetKind() {
		case "Pod":
			pod = mustJSON(t, c)
		case "ProxyProbe":
			probe = mustJSON(t, c)
		}
	}
	now := metav1.NewTime(proxytest.Noon())
	switch {
	case pod == nil && w.pod != nil:
		w.pod.DeletionTimestamp = &now
	case pod != nil && w.pod == nil:
		w.pods++
		w.pod = &corev1.Pod{}
		require.NoError(t, json.Unmarshal(pod, w.pod))
		require.NotEmpty(t, w.pod.Spec.Containers, "the API server refuses a Pod that is only named")
		w.pod.UID, w.pod.CreationTimestamp = types.UID(fmt.Sprintf("pod-%d", w.pods)), now
	}
	if probe == nil {
		w.probe = nil
		return
	}
	wanted := &v1alpha1.ProxyProbe{}
	require.NoError(t, json.Unmarshal(probe, wanted))
	if w.probe != nil {
		wanted.Status = w.probe.Status
	}
	w.probe = wanted
}

// leasable reports whether the discovery API would offer the proxy.
func (w *world) leasable() bool {
	s := w.proxy.Status
	return s.Phase == v1alpha1.PhaseReady && s.ObservedGeneration == w.proxy.Generation && s.IP != "" && s.Port != 0
}

// kubelet starts a Pod, or takes a terminating one away. A cloud does the like.
func (w *world) kubelet() {
	if w.cloud != nil {
		w.cloud.step()
	}
	switch {
	case w.pod == nil:
	case w.pod.DeletionTimestamp != nil:
		w.pod = nil
	default:
		w.pod.Status.Phase, w.pod.Status.PodIP = corev1.PodRunning, fmt.Sprintf("10.0.0.%d", w.pods)
	}
}

// prober finds the proxy healthy, unless it is broken.
func (w *world) prober() {
	switch {
	case w.probe == nil:
	case w.broken:
		w.probe.Status = v1alpha1.ProxyProbeStatus{InstanceID: w.probe.Spec.InstanceID, Verdict: v1alpha1.VerdictUnhealthy, Reason: "ConnectTimeout"}
	default:
		w.probe.Status = v1alpha1.ProxyProbeStatus{InstanceID: w.probe.Spec.InstanceID, Verdict: v1alpha1.VerdictHealthy, Reason: "ProbeSucceeded"}
	}
}

// offersOnlyWhatIsThere: a Ready Proxy points at a living Pod, on its port.
func (w *world) offersOnlyWhatIsThere(t *testing.T) {
	t.Helper()
	s := w.proxy.Status
	if s.Phase != v1alpha1.PhaseReady {
		return
	}
	if w.cloud != nil {
		require.NotNil(t, w.cloud.vm)
		assert.Equal(t, []any{w.cloud.vm.InstanceID, w.cloud.vm.IP, w.cloud.vm.Port}, []any{s.InstanceID, s.IP, s.Port})
		return
	}
	require.NotNil(t, w.pod)
	assert.Equal(t, string(w.pod.UID), s.InstanceID)
	assert.Equal(t, w.pod.Status.PodIP, s.IP)
	assert.Equal(t, w.pod.Spec.Containers[0].Ports[0].ContainerPort, s.Port)
}

// round lets everybody act once.
func (w *world) round(t *testing.T, h *Hooks) {
	t.Helper()
	w.sync(t, h)
	w.offersOnlyWhatIsThere(t)
	w.kubelet()
	w.prober()
}

func (w *world) until(t *testing.T, h *Hooks, what string, ok func() bool) {
	t.Helper()
	for range 12 {
		if w.round(t, h); ok() {
			return
		}
	}
	require.Fail(t, "never "+what, "%+v", w.proxy.Status)
}
