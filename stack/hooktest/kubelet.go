package hooktest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// NodeName is the node of the Pods: only a bound Pod terminates gracefully, others are gone as soon
// as they are deleted.
const NodeName = "lab"

// Bind acts as the scheduler.
func (l *Lab) Bind(ctx context.Context, pod string) error {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: Namespace},
		Target:     corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: NodeName},
	}
	return l.core.CoreV1().Pods(Namespace).Bind(ctx, binding, metav1.CreateOptions{})
}

// Run acts as a kubelet whose Pod is Running at that address.
func (l *Lab) Run(ctx context.Context, pod, ip string) error {
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	return l.patchPodStatus(ctx, pod, status)
}

func (l *Lab) patchPodStatus(ctx context.Context, pod string, status corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("encode a Pod's status: %w", err)
	}
	_, err = l.core.CoreV1().Pods(Namespace).Patch(ctx, pod, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// Kill removes a Pod at once, as a kubelet at the end of a termination, or an accident, does.
func (l *Lab) Kill(ctx context.Context, pod string, uid types.UID) error {
	now := int64(0)
	return ignoreGone(l.core.CoreV1().Pods(Namespace).Delete(ctx, pod, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &uid},
	}))
}

// PlayKubelet runs every new Pod, each at an address of its own, and removes it once it is deleted,
// until the test ends.
func (l *Lab) PlayKubelet() {
	hosts := &hosts{given: map[types.UID]string{}}
	l.play(PodResource(), func(ctx context.Context, obj *unstructured.Unstructured) error {
		var pod corev1.Pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &pod); err != nil {
			return fmt.Errorf("convert pod %s: %w", obj.GetName(), err)
		}
		switch {
		case pod.DeletionTimestamp != nil:
			return l.Kill(ctx, pod.Name, pod.UID)
		case pod.Spec.NodeName == "":
			return l.Bind(ctx, pod.Name)
		case pod.Status.Phase != corev1.PodRunning:
			return l.Run(ctx, pod.Name, hosts.of(pod.UID))
		}
		return nil
	})
}

// hosts gives each Pod one address, also when the cached Pod is stale and has none yet.
type hosts struct {
	mu    sync.Mutex
	given map[types.UID]string
}

func (h *hosts) of(pod types.UID) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.given[pod] == "" {
		n := len(h.given) + 1
		h.given[pod] = fmt.Sprintf("10.77.%d.%d", n>>8&0xff, n&0xff)
	}
	return h.given[pod]
}
