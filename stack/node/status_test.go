package node

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	early = metav1.NewTime(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	late  = metav1.NewTime(early.Add(time.Minute))
	where = place{podIP: "127.41.7.16", hostIP: "127.41.7.1", imageID: "process:///usr/sbin/squid"}
)

func runningState() containerState {
	return containerState{ID: "process://7", Current: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: early}}}
}

func waitingState(reason, id string) containerState {
	return containerState{ID: id, Current: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
}

func condition(t *testing.T, s corev1.PodStatus, kind corev1.PodConditionType) corev1.PodCondition {
	t.Helper()
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	t.Fatalf("no condition %s", kind)
	return corev1.PodCondition{}
}

func TestRunningStatus(t *testing.T) {
	pod := proxyPod("a", "x")
	pod.Generation = 3
	s := runningStatus(pod, runningState(), where, early)

	assert.Equal(t, corev1.PodRunning, s.Phase)
	assert.Equal(t, "127.41.7.16", s.PodIP)
	assert.Equal(t, []corev1.PodIP{{IP: "127.41.7.16"}}, s.PodIPs)
	assert.Equal(t, "127.41.7.1", s.HostIP)
	assert.Equal(t, int64(3), s.ObservedGeneration)
	assert.Equal(t, early, *s.StartTime)
	require.Len(t, s.ContainerStatuses, 1)
	cs := s.ContainerStatuses[0]
	assert.True(t, cs.Ready)
	assert.True(t, *cs.Started)
	assert.Equal(t, "process://7", cs.ContainerID)
	assert.Equal(t, "squid:test", cs.Image)
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		assert.Equal(t, corev1.ConditionTrue, condition(t, s, kind).Status, kind)
	}
}

func TestStatusIsIdempotent(t *testing.T) {
	for name, state := range map[string]containerState{
		"running": runningState(),
		"waiting": waitingState(reasonCrashLoop, "process://7"),
		"nothing": {},
	} {
		pod := proxyPod("a", "x")
		pod.Status = runningStatus(pod, state, where, early)
		assert.Equal(t, asJSON(t, pod.Status), asJSON(t, runningStatus(pod, state, where, late)), name)
	}
	pod := proxyPod("a", "x")
	pod.Status = refusedStatus(pod, reasonConfigError, "why", early)
	assert.Equal(t, asJSON(t, pod.Status), asJSON(t, refusedStatus(pod, reasonConfigError, "why", late)))
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

func TestConditionTimesChangeOnlyWithTheStatus(t *testing.T) {
	pod := proxyPod("a", "x")
	pod.Status = runningStatus(pod, runningState(), where, early)
	s := runningStatus(pod, waitingState(reasonCrashLoop, "process://7"), where, late)

	assert.Equal(t, corev1.PodRunning, s.Phase, "a Pod that has run and is restarted stays Running, as on a real node")
	assert.Equal(t, "127.41.7.16", s.PodIP)
	assert.False(t, s.ContainerStatuses[0].Ready)
	ready := condition(t, s, corev1.PodReady)
	assert.Equal(t, corev1.ConditionFalse, ready.Status)
	assert.Equal(t, reasonNotReady, ready.Reason)
	assert.Equal(t, late, ready.LastTransitionTime)
	assert.Equal(t, early, condition(t, s, corev1.PodInitialized).LastTransitionTime)
	assert.Equal(t, early, *s.StartTime)
	assert.Equal(t, early, condition(t, pod.Status, corev1.PodReady).LastTransitionTime, "the argument is not changed")
}

func TestPodThatNeverRanIsPending(t *testing.T) {
	s := runningStatus(proxyPod("a", "x"), waitingState(reasonStartError, ""), where, early)
	assert.Equal(t, corev1.PodPending, s.Phase)
	assert.Empty(t, s.PodIP)
	assert.Empty(t, s.PodIPs)
	assert.Equal(t, "127.41.7.1", s.HostIP)
}

func TestRefusedStatusHasTheReasonOnEveryContainer(t *testing.T) {
	pod := proxyPod("a", "x")
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "second"})
	s := refusedStatus(pod, reasonConfigError, "because", early)
	assert.Equal(t, corev1.PodPending, s.Phase)
	require.Len(t, s.ContainerStatuses, 2)
	for _, c := range s.ContainerStatuses {
		assert.Equal(t, reasonConfigError, c.State.Waiting.Reason)
		assert.Equal(t, "because", c.State.Waiting.Message)
	}
	assert.Equal(t, corev1.ConditionFalse, condition(t, s, corev1.PodReady).Status)
}

func TestConditionsOfOtherWritersStay(t *testing.T) {
	pod := proxyPod("a", "x")
	pod.Status.Conditions = []corev1.PodCondition{{Type: "Other", Status: corev1.ConditionTrue}}
	pod.Status.QOSClass = corev1.PodQOSBurstable
	s := runningStatus(pod, runningState(), where, early)
	assert.Equal(t, corev1.ConditionTrue, condition(t, s, "Other").Status)
	assert.Equal(t, corev1.PodQOSBurstable, s.QOSClass)
}

func TestInherited(t *testing.T) {
	pod := proxyPod("a", "x")
	assert.Equal(t, containerState{}, inherited(pod, late), "a new Pod")

	pod.Status = runningStatus(pod, runningState(), where, early)
	pod.Status.ContainerStatuses[0].RestartCount = 4
	s := inherited(pod, late)
	assert.Equal(t, int32(5), s.Restarts)
	assert.Equal(t, "process://7", s.ID)
	require.NotNil(t, s.Last.Terminated)
	assert.Equal(t, int32(137), s.Last.Terminated.ExitCode)
	assert.Equal(t, early, s.Last.Terminated.StartedAt)
	assert.Equal(t, late, s.Last.Terminated.FinishedAt)

	crashed := waitingState(reasonCrashLoop, "process://7")
	crashed.Last = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}
	pod.Status = runningStatus(pod, crashed, where, early)
	assert.Equal(t, int32(3), inherited(pod, late).Last.Terminated.ExitCode, "how it ended is known")

	pod.Status = refusedStatus(pod, reasonConfigError, "x", early)
	assert.Equal(t, containerState{}, inherited(pod, late), "a Pod that never ran")
}
