package webhooks

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// The observed types hold as much of the observed objects as decisions rest on.
// Most of an object's text is elsewhere, in managedFields and the last-applied
// annotation, and is passed over.

// observedMeta is the metadata of our own kinds.
type observedMeta struct {
	metav1.ObjectMeta `json:",inline"`
	ManagedFields     unread `json:"managedFields"`
}

// unread takes the place of a field that nobody reads.
type unread struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*unread) UnmarshalJSON([]byte) error { return nil }

type observedProxy struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        observedMeta         `json:"metadata"`
	Spec            v1alpha1.ProxySpec   `json:"spec"`
	Status          v1alpha1.ProxyStatus `json:"status"`
}

type observedProbe struct {
	Metadata observedMeta              `json:"metadata"`
	Spec     v1alpha1.ProxyProbeSpec   `json:"spec"`
	Status   v1alpha1.ProxyProbeStatus `json:"status"`
}

type observedPod struct {
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
		Containers []observedContainer `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase             corev1.PodPhase           `json:"phase"`
		PodIP             string                    `json:"podIP"`
		Conditions        []observedPodCondition    `json:"conditions"`
		ContainerStatuses []observedContainerStatus `json:"containerStatuses"`
	} `json:"status"`
}

type observedContainer struct {
	Name  string `json:"name"`
	Ports []struct {
		Name          string `json:"name"`
		ContainerPort int32  `json:"containerPort"`
	} `json:"ports"`
}

type observedPodCondition struct {
	Type   corev1.PodConditionType `json:"type"`
	Status corev1.ConditionStatus  `json:"status"`
	Reason string                  `json:"reason"`
}

type observedContainerStatus struct {
	State struct {
		Waiting *struct {
			Reason string `json:"reason"`
		} `json:"waiting"`
	} `json:"state"`
}
