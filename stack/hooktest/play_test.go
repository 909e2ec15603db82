package hooktest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// players is the number of objects that one role handles concurrently.
const players = 4

// act handles an object in one role. It is called for every change, and retried after an error.
type act func(ctx context.Context, obj *unstructured.Unstructured) error

// play calls act for all objects of a resource until the test ends.
func (l *Lab) play(gvr schema.GroupVersionResource, act act) {
	l.t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	store := l.watch(gvr, func(obj *unstructured.Unstructured) {
		queue.Add(cache.MetaObjectToName(obj).String())
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range players {
		wg.Go(func() { l.perform(ctx, queue, store, act) })
	}
	l.t.Cleanup(func() {
		cancel()
		queue.ShutDown()
		wg.Wait()
	})
}

// watch calls see for every object and every change, one after the other, until
// the test ends. It returns the watched objects.
func (l *Lab) watch(gvr schema.GroupVersionResource, see func(obj *unstructured.Unstructured)) cache.Store {
	l.t.Helper()
	informer := dynamicinformer.NewFilteredDynamicInformer(l.api, gvr, Namespace, 0, cache.Indexers{}, nil).Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { see(obj.(*unstructured.Unstructured)) },
		UpdateFunc: func(_, obj any) { see(obj.(*unstructured.Unstructured)) },
	})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { informer.RunWithContext(ctx) })
	l.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return informer.GetStore()
}

// perform handles one object after the other. Conflicts and deleted objects are expected.
func (l *Lab) perform(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string], store cache.Store, act act) {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		var err error
		if obj, exists, _ := store.GetByKey(key); exists {
			err = act(ctx, obj.(*unstructured.Unstructured))
		}
		switch {
		case err == nil, apierrors.IsNotFound(err), ctx.Err() != nil:
			queue.Forget(key)
		default:
			if !apierrors.IsConflict(err) {
				l.t.Logf("%s: %v", key, err)
			}
			queue.AddRateLimited(key)
		}
		queue.Done(key)
	}
}

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
	return l.setPodStatus(ctx, pod, corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	})
}

// Refuse acts as a kubelet that does not run the Pod for that reason.
func (l *Lab) Refuse(ctx context.Context, pod, reason string) error {
	return l.setPodStatus(ctx, pod, corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: "Pod was rejected"})
}

func (l *Lab) setPodStatus(ctx context.Context, pod string, status corev1.PodStatus) error {
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

// Judge writes a verdict on an instance, as the prober does.
func (l *Lab) Judge(ctx context.Context, probe, instanceID string, verdict v1alpha1.Verdict, reason string) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"instanceID": instanceID, "verdict": verdict, "reason": reason, "message": "as the test says",
		"latencyMillis": 12, "lastProbeTime": metav1.Now(), "lastTransitionTime": metav1.Now(),
	}})
	if err != nil {
		return fmt.Errorf("encode a verdict: %w", err)
	}
	_, err = l.In(v1alpha1.ProxyProbeResource()).Patch(ctx, probe, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// PlayProber writes the verdict Healthy for every instance that is to be probed, until the test
// ends.
func (l *Lab) PlayProber() {
	l.play(v1alpha1.ProxyProbeResource(), func(ctx context.Context, obj *unstructured.Unstructured) error {
		probe := &v1alpha1.ProxyProbe{}
		if err := v1alpha1.FromUnstructured(obj.Object, probe); err != nil {
			return err
		}
		if probe.Status.InstanceID == probe.Spec.InstanceID || probe.DeletionTimestamp != nil {
			return nil
		}
		return l.Judge(ctx, probe.Name, probe.Spec.InstanceID, v1alpha1.VerdictHealthy, "ProbeSucceeded")
	})
}
