package proxy

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// InstanceState is the state of an instance, Pod or VM.
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
	// InstanceUnknown: it is unknown whether one exists.
	InstanceUnknown InstanceState = "Unknown"
)

// Instance is what was observed of the Pod or VM that serves a Proxy. Decisions
// depend on nothing else of it.
type Instance struct {
	// VM: the cloud adapter reports it, and it is no child.
	VM bool
	// State, InstanceAbsent when there is no instance.
	State InstanceState
	// Terminating: its deletion is under way.
	Terminating bool
	// ProviderID locates it, ID distinguishes it from its predecessors.
	ProviderID, ID string
	// IP and Port are where it serves; IP is empty before it runs.
	IP   string
	Port int32
	// SpecHash is the hash it carries, empty when it carries none.
	SpecHash string
	// Waiting is the reason why it does not run yet, such as ImagePullBackOff;
	// empty when unknown.
	Waiting string
	// Ended is the reason why it ended, such as Evicted or OutOfcpu; empty when unknown.
	Ended string
	// CreatedAt is its creation time.
	CreatedAt time.Time
}

// Absent is an instance that is confirmed not to exist.
func Absent() Instance { return Instance{State: InstanceAbsent} }

// Exists reports whether there is an instance to keep or to remove.
func (i Instance) Exists() bool { return i.State != InstanceAbsent }

// IsLivePod reports whether the instance is a Pod that is not being deleted.
func (i Instance) IsLivePod() bool { return i.Exists() && !i.VM && !i.Terminating }

// serves reports whether crawlers can use it.
func (i Instance) serves() bool { return i.State == InstanceRunning && !i.Terminating }

// Pod holds the fields of a Pod that its Instance depends on.
type Pod struct {
	Metadata struct {
		Namespace         string       `json:"namespace"`
		Name              string       `json:"name"`
		UID               types.UID    `json:"uid"`
		CreationTimestamp metav1.Time  `json:"creationTimestamp"`
		DeletionTimestamp *metav1.Time `json:"deletionTimestamp"`
		Annotations       struct {
			SpecHash string `json:"crawl.example.com/spec-hash"`
		} `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Containers []struct {
			Name  string                 `json:"name"`
			Ports []corev1.ContainerPort `json:"ports"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase             corev1.PodPhase       `json:"phase"`
		Reason            string                `json:"reason"`
		PodIP             string                `json:"podIP"`
		Conditions        []corev1.PodCondition `json:"conditions"`
		ContainerStatuses []struct {
			State corev1.ContainerState `json:"state"`
		} `json:"containerStatuses"`
	} `json:"status"`
}

// Instance maps a Pod.
func (p *Pod) Instance() Instance {
	in := Instance{
		State:       p.state(),
		Terminating: p.Metadata.DeletionTimestamp != nil,
		ProviderID:  podProviderID(p.Metadata.Namespace, p.Metadata.Name),
		ID:          string(p.Metadata.UID),
		IP:          p.Status.PodIP,
		Port:        p.port(),
		SpecHash:    p.Metadata.Annotations.SpecHash,
		Waiting:     p.waiting(),
		CreatedAt:   p.Metadata.CreationTimestamp.Time,
	}
	if in.State == InstanceEnded {
		in.Ended = p.ended()
	}
	return in
}

func podProviderID(namespace, name string) string { return namespace + "/" + name }

// state maps the phase. A Pod in phase Failed, Succeeded or Unknown will not
// serve again; Running counts only with an address.
func (p *Pod) state() InstanceState {
	switch p.Status.Phase {
	case corev1.PodFailed, corev1.PodSucceeded, corev1.PodUnknown:
		return InstanceEnded
	case corev1.PodRunning:
		if p.Status.PodIP != "" {
			return InstanceRunning
		}
	}
	return InstanceProvisioning
}

// port is the port named "proxy" of our container, 0 for a foreign Pod.
func (p *Pod) port() int32 {
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if c.Name == v1alpha1.PodContainer && port.Name == v1alpha1.PodPort {
				return port.ContainerPort
			}
		}
	}
	return 0
}

// waiting is the reason of the first waiting container, or else of the scheduler.
// Their messages contain counters and durations and are left out: without an
// event the status must stay the same.
func (p *Pod) waiting() string {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Waiting != nil && c.State.Waiting.Reason != "" {
			return podReason(c.State.Waiting.Reason)
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return podReason(c.Reason)
		}
	}
	return ""
}

// ended is the kubelet's reason for the end of the Pod, or else that of a container.
func (p *Pod) ended() string {
	if p.Status.Reason != "" {
		return podReason(p.Status.Reason)
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Terminated != nil && c.State.Terminated.Reason != "" {
			return podReason(c.State.Terminated.Reason)
		}
	}
	return ""
}

// maxPodReason is the most characters of a reason in a Pod's status.
const maxPodReason = 64

// podReason is a reason of a Pod's status, or UnknownReason for one that is no
// identifier: anyone with rights on Pods may write it.
func podReason(reason string) string {
	if len(reason) > maxPodReason {
		return unknownReason
	}
	return validReason(reason, unknownReason)
}

const unknownReason = "UnknownReason"
