package proxy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

// instanceOf is what the hooks make of a Pod.
func instanceOf(t *testing.T, pod *corev1.Pod) Instance {
	t.Helper()
	var observed Pod
	require.NoError(t, json.Unmarshal(mustJSON(t, pod), &observed))
	return observed.Instance()
}

func TestPodInstanceState(t *testing.T) {
	for name, tt := range map[string]struct {
		phase corev1.PodPhase
		ip    string
		want  InstanceState
	}{
		"just created":        {"", "", InstanceProvisioning},
		"pending":             {corev1.PodPending, "", InstanceProvisioning},
		"pending, with IP":    {corev1.PodPending, "10.0.0.1", InstanceProvisioning},
		"running without IP":  {corev1.PodRunning, "", InstanceProvisioning},
		"running":             {corev1.PodRunning, "10.0.0.1", InstanceRunning},
		"failed":              {corev1.PodFailed, "10.0.0.1", InstanceEnded},
		"succeeded":           {corev1.PodSucceeded, "10.0.0.1", InstanceEnded},
		"unknown":             {corev1.PodUnknown, "10.0.0.1", InstanceEnded},
		"phase of the future": {"Hibernating", "10.0.0.1", InstanceProvisioning},
	} {
		t.Run(name, func(t *testing.T) {
			in := instanceOf(t, proxytest.Pod(t, proxytest.Managed(), tt.phase, tt.ip))
			assert.Equal(t, tt.want, in.State)
			assert.False(t, in.Terminating)
			assert.Equal(t, tt.want == InstanceRunning, in.serves())
			assert.True(t, in.Exists())
		})
	}
}

func TestPodInstanceFacts(t *testing.T) {
	p := proxytest.Managed()
	p.Spec.Port = 8888
	in := instanceOf(t, proxytest.Pod(t, p, corev1.PodRunning, "10.0.0.1"))
	assert.Equal(t, Instance{
		State: InstanceRunning, ProviderID: "crawl/" + v1alpha1.InstanceName(p.UID), ID: proxytest.PodID,
		IP: "10.0.0.1", Port: 8888, SpecHash: proxytest.Hash(p), CreatedAt: in.CreatedAt,
	}, in)
	assert.Equal(t, proxytest.Noon().Add(-60e9), in.CreatedAt.UTC())
}

func TestPodInstanceTerminating(t *testing.T) {
	pod := proxytest.Pod(t, proxytest.Managed(), corev1.PodRunning, "10.0.0.1")
	now := metav1.NewTime(proxytest.Noon())
	pod.DeletionTimestamp = &now
	in := instanceOf(t, pod)
	assert.True(t, in.Terminating)
	assert.False(t, in.serves())
}

func TestPodInstanceWaiting(t *testing.T) {
	waiting := func(reason string) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "back-off 40s restarting"}}}
	}
	unscheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes"}
	for name, tt := range map[string]struct {
		status corev1.PodStatus
		want   string
	}{
		"nothing known":         {corev1.PodStatus{}, ""},
		"image":                 {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waiting("ImagePullBackOff")}}, "ImagePullBackOff"},
		"second container":      {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{}, waiting("CreateContainerError")}}, "CreateContainerError"},
		"no identifier":         {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waiting("no image\n")}}, "UnknownReason"},
		"no node":               {corev1.PodStatus{Conditions: []corev1.PodCondition{unscheduled}}, "Unschedulable"},
		"scheduled":             {corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}}, ""},
		"container before node": {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waiting("ErrImagePull")}, Conditions: []corev1.PodCondition{unscheduled}}, "ErrImagePull"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := proxytest.Pod(t, proxytest.Managed(), corev1.PodPending, "")
			pod.Status = tt.status
			assert.Equal(t, tt.want, instanceOf(t, pod).Waiting)
		})
	}
}

func TestPodInstanceEnded(t *testing.T) {
	terminated := corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled"}}}}}
	for name, tt := range map[string]struct {
		phase  corev1.PodPhase
		status corev1.PodStatus
		want   string
	}{
		"refused by the kubelet": {corev1.PodFailed, corev1.PodStatus{Reason: "OutOfcpu", Message: "requested: 1000, used: 3500"}, "OutOfcpu"},
		"evicted":                {corev1.PodFailed, corev1.PodStatus{Reason: "Evicted", ContainerStatuses: terminated.ContainerStatuses}, "Evicted"},
		"container":              {corev1.PodFailed, terminated, "OOMKilled"},
		"nothing known":          {corev1.PodFailed, corev1.PodStatus{}, ""},
		"no identifier":          {corev1.PodFailed, corev1.PodStatus{Reason: "<b>\nOut of cpu"}, "UnknownReason"},
		"too long":               {corev1.PodFailed, corev1.PodStatus{Reason: strings.Repeat("a", 65)}, "UnknownReason"},
		"runs":                   {corev1.PodRunning, corev1.PodStatus{Reason: "Left"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := proxytest.Pod(t, proxytest.Managed(), tt.phase, "10.0.0.1")
			pod.Status.Reason, pod.Status.Message, pod.Status.ContainerStatuses = tt.status.Reason, tt.status.Message, tt.status.ContainerStatuses
			assert.Equal(t, tt.want, instanceOf(t, pod).Ended)
		})
	}
}

func TestPodInstanceOfAForeignPod(t *testing.T) {
	in := instanceOf(t, &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Ports: []corev1.ContainerPort{{Name: "proxy", ContainerPort: 80}}}}}})
	assert.Zero(t, in.Port)
	assert.Empty(t, in.SpecHash)
}
