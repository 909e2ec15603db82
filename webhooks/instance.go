package webhooks

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// InstanceState is where an instance is in its life, whatever runs it.
type InstanceState string

const (
	// InstanceAbsent: confirmed not to exist.
	InstanceAbsent InstanceState = "Absent"
	// InstanceProvisioning: exists and does not serve yet.
	InstanceProvisioning InstanceState = "Provisioning"
	// InstanceRunning: runs and has an address.
	InstanceRunning InstanceState = "Running"
	// InstanceEnded: exists and will not serve again.
	InstanceEnded InstanceState = "Ended"
	// InstanceUnknown: nobody tells whether there is one.
	InstanceUnknown InstanceState = "Unknown"
)

// Instance is what was observed of the Pod or VM that serves a Proxy. decide
// knows nothing else of it.
type Instance struct {
	// VM: the cloud adapter tells of it, and it is no child.
	VM bool
	// State, InstanceAbsent when there is no instance.
	State InstanceState
	// Terminating: its deletion is under way.
	Terminating bool
	// ProviderID locates it, ID tells it from its predecessors.
	ProviderID, ID string
	// IP and Port are where it serves; IP is empty before it runs.
	IP   string
	Port int32
	// SpecHash is the hash it carries, empty when it carries none.
	SpecHash string
	// Waiting is the one word that tells why it does not run yet, such as
	// ImagePullBackOff; empty when nobody knows.
	Waiting string
	// CreatedAt is when it was created.
	CreatedAt time.Time
}

// absentInstance stands for an instance that is confirmed not to exist.
func absentInstance() Instance { return Instance{State: InstanceAbsent} }

// exists reports whether there is something to keep or to remove.
func (i Instance) exists() bool { return i.State != InstanceAbsent }

// serves reports whether crawlers can use it.
func (i Instance) serves() bool { return i.State == InstanceRunning && !i.Terminating }

// podInstance maps a Pod. Its phases Failed, Succeeded and Unknown all mean
// that this Pod will not serve again; Running counts only with an address.
func podInstance(pod *observedPod) Instance {
	return Instance{
		State:       podState(pod),
		Terminating: pod.Metadata.DeletionTimestamp != nil,
		ProviderID:  podProviderID(pod.Metadata.Namespace, pod.Metadata.Name),
		ID:          string(pod.Metadata.UID),
		IP:          pod.Status.PodIP,
		Port:        podPort(pod),
		SpecHash:    pod.Metadata.Annotations.SpecHash,
		Waiting:     podWaiting(pod),
		CreatedAt:   pod.Metadata.CreationTimestamp.Time,
	}
}

func podProviderID(namespace, name string) string { return namespace + "/" + name }

func podState(pod *observedPod) InstanceState {
	switch pod.Status.Phase {
	case corev1.PodFailed, corev1.PodSucceeded, corev1.PodUnknown:
		return InstanceEnded
	case corev1.PodRunning:
		if pod.Status.PodIP != "" {
			return InstanceRunning
		}
	}
	return InstanceProvisioning
}

// podPort is the port named "proxy" of our container, 0 when the Pod was not
// made by us.
func podPort(pod *observedPod) int32 {
	for _, c := range pod.Spec.Containers {
		if c.Name != v1alpha1.PodContainer {
			continue
		}
		for _, p := range c.Ports {
			if p.Name == v1alpha1.PodPort {
				return p.ContainerPort
			}
		}
	}
	return 0
}

// podWaiting is the reason of the first container that waits, or else of the
// scheduler. Their messages hold counters and durations and are left out: a
// status must not change by itself.
func podWaiting(pod *observedPod) string {
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Waiting != nil && c.State.Waiting.Reason != "" {
			return c.State.Waiting.Reason
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason
		}
	}
	return ""
}
