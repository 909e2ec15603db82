package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// reconcile reconciles the Pod of that name.
func (n *Node) reconcile(ctx context.Context, key types.NamespacedName) error {
	pod, err := n.pods.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		n.evict(key, "")
		return nil
	}
	if err != nil {
		return fmt.Errorf("get Pod: %w", err)
	}
	n.evict(key, pod.UID)
	switch actionFor(pod, n.cfg.Name) {
	case bind:
		return n.bind(ctx, pod)
	case runPod:
		return n.keepRunning(ctx, pod)
	case terminate:
		return n.terminate(ctx, pod)
	}
	return nil
}

// evict stops, at once, the processes of earlier Pods of that name, which were force-deleted.
func (n *Node) evict(key types.NamespacedName, current types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for uid, c := range n.containers {
		if c.pod == key && uid != current {
			c.stop(0)
		}
	}
}

func (n *Node) bind(ctx context.Context, pod *corev1.Pod) error {
	err := n.cfg.Client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: n.cfg.Name},
	}, metav1.CreateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // another writer was first; the watch triggers the next reconcile
	}
	if err != nil {
		return fmt.Errorf("bind Pod: %w", err)
	}
	return nil
}

// keepRunning starts the Pod's process if needed, and writes the Pod's status.
func (n *Node) keepRunning(ctx context.Context, pod *corev1.Pod) error {
	config, err := podConfig(pod)
	if err != nil {
		return n.refuse(ctx, pod, reasonConfigError, err)
	}
	c, err := n.container(ctx, pod, config)
	if err != nil {
		return err
	}
	if c == nil {
		return nil // the status contains why
	}
	state := c.snapshot()
	if state.Current == (corev1.ContainerState{}) {
		return nil // about to start, which triggers the next reconcile
	}
	at := place{podIP: c.addr.String(), hostIP: n.hostIP, imageID: containerIDPrefix + n.cfg.Launcher.Path}
	return n.writeStatus(ctx, pod, runningStatus(pod, state, at, n.now()))
}

// terminate stops the Pod's process; once that has exited, which triggers the next reconcile, it
// lets the API server remove the Pod.
func (n *Node) terminate(ctx context.Context, pod *corev1.Pod) error {
	n.mu.Lock()
	c := n.containers[pod.UID]
	n.mu.Unlock()
	if c != nil {
		c.stop(time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second)
		return nil
	}
	if err := newPodDir(n.cfg.Root, pod.UID).remove(); err != nil { // from an earlier node
		return err
	}
	err := n.cfg.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0),
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete Pod: %w", err)
	}
	return nil
}

func (n *Node) refuse(ctx context.Context, pod *corev1.Pod, reason string, why error) error {
	return n.writeStatus(ctx, pod, refusedStatus(pod, reason, why.Error(), n.now()))
}

// writeStatus writes the status if it has changed.
func (n *Node) writeStatus(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	if equality.Semantic.DeepEqual(pod.Status, status) {
		return nil
	}
	updated := pod.DeepCopy()
	updated.Status = status
	_, err := n.cfg.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the watch delivers the newer Pod, which triggers a retry
	}
	if err != nil {
		return fmt.Errorf("write Pod status: %w", err)
	}
	return nil
}

func (n *Node) now() metav1.Time {
	return metav1.NewTime(n.cfg.Clock.Now().UTC().Truncate(time.Second))
}
