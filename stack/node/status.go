package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

const reasonNotReady = "ContainersNotReady"

// place is the location of a Pod.
type place struct {
	podIP, hostIP string
	// imageID names the program that runs in place of the image.
	imageID string
}

// runningStatus is the status of a Pod whose container is in that state. As with the kubelet, the
// phase stays Running during a restart. It is idempotent: times change only with their facts.
func runningStatus(pod *corev1.Pod, state containerState, at place, now metav1.Time) corev1.PodStatus {
	ready := state.Current.Running != nil
	phase := corev1.PodRunning
	if !ready && state.ID == "" {
		phase = corev1.PodPending
	}
	status := newStatus(pod, phase, ready, now)
	status.HostIP = at.hostIP
	status.HostIPs = []corev1.HostIP{{IP: at.hostIP}}
	if phase == corev1.PodRunning {
		status.PodIP = at.podIP
		status.PodIPs = []corev1.PodIP{{IP: at.podIP}}
	}
	status.ContainerStatuses = []corev1.ContainerStatus{{
		Name:                 pod.Spec.Containers[0].Name,
		State:                state.Current,
		LastTerminationState: state.Last,
		Ready:                ready,
		Started:              &ready,
		RestartCount:         state.Restarts,
		Image:                pod.Spec.Containers[0].Image,
		ImageID:              at.imageID,
		ContainerID:          state.ID,
	}}
	return status
}

// refusedStatus is the status of a Pod that this node cannot run, with the reason.
func refusedStatus(pod *corev1.Pod, reason, message string, now metav1.Time) corev1.PodStatus {
	status := newStatus(pod, corev1.PodPending, false, now)
	status.ContainerStatuses = nil
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name:  c.Name,
			Image: c.Image,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: shorten(message)}},
		})
	}
	return status
}

// newStatus is the common part of both. Fields of other writers stay.
func newStatus(pod *corev1.Pod, phase corev1.PodPhase, ready bool, now metav1.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.Phase = phase
	status.ObservedGeneration = pod.Generation
	if status.StartTime == nil {
		status.StartTime = &now
	}
	readiness := corev1.PodCondition{Status: corev1.ConditionTrue}
	if !ready {
		readiness = corev1.PodCondition{Status: corev1.ConditionFalse, Reason: reasonNotReady, Message: "containers with unready status: [" + v1alpha1.PodContainer + "]"}
	}
	status.Conditions = setCondition(status.Conditions, corev1.PodScheduled, corev1.PodCondition{Status: corev1.ConditionTrue}, now)
	status.Conditions = setCondition(status.Conditions, corev1.PodInitialized, corev1.PodCondition{Status: corev1.ConditionTrue}, now)
	status.Conditions = setCondition(status.Conditions, corev1.ContainersReady, readiness, now)
	status.Conditions = setCondition(status.Conditions, corev1.PodReady, readiness, now)
	return status
}

// setCondition sets the condition of that type; its time changes only with its status.
func setCondition(conditions []corev1.PodCondition, kind corev1.PodConditionType, c corev1.PodCondition, now metav1.Time) []corev1.PodCondition {
	c.Type, c.LastTransitionTime = kind, now
	i := slices.IndexFunc(conditions, func(o corev1.PodCondition) bool { return o.Type == kind })
	if i < 0 {
		return append(conditions, c)
	}
	old := conditions[i]
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	c.ObservedGeneration = old.ObservedGeneration
	conditions[i] = c
	return conditions
}
