package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// proxyPod is a Pod as the sync hook builds it, with the fields that the node reads.
func proxyPod(name, config string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{
				Name:  v1alpha1.PodContainer,
				Image: "squid:test",
				Env:   []corev1.EnvVar{{Name: "OTHER", Value: "x"}, {Name: v1alpha1.PodConfigEnv, Value: config}},
			}},
		},
	}
}

func TestActionFor(t *testing.T) {
	deleted := &metav1.Time{}
	tests := map[string]struct {
		node    string
		deleted *metav1.Time
		phase   corev1.PodPhase
		want    action
	}{
		"unbound":               {"", nil, corev1.PodPending, bind},
		"unbound, deleted":      {"", deleted, corev1.PodPending, ignore},
		"ours, new":             {"local", nil, corev1.PodPending, runPod},
		"ours, running":         {"local", nil, corev1.PodRunning, runPod},
		"ours, deleted":         {"local", deleted, corev1.PodRunning, terminate},
		"ours, failed":          {"local", nil, corev1.PodFailed, ignore},
		"ours, failed, deleted": {"local", deleted, corev1.PodFailed, terminate},
		"ours, succeeded":       {"local", nil, corev1.PodSucceeded, ignore},
		"another's":             {"other", nil, corev1.PodRunning, ignore},
		"another's, deleted":    {"other", deleted, corev1.PodRunning, ignore},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := proxyPod("a", "x")
			pod.Spec.NodeName, pod.DeletionTimestamp, pod.Status.Phase = tt.node, tt.deleted, tt.phase
			assert.Equal(t, tt.want, actionFor(pod, "local"))
		})
	}
}

func TestPodConfig(t *testing.T) {
	got, err := podConfig(proxyPod("a", "http_port 1"))
	require.NoError(t, err)
	assert.Equal(t, "http_port 1", got)

	tests := map[string]struct {
		change func(*corev1.PodSpec)
		says   string
	}{
		"other container":  {func(s *corev1.PodSpec) { s.Containers[0].Name = "nginx" }, `named "squid"`},
		"two containers":   {func(s *corev1.PodSpec) { s.Containers = append(s.Containers, corev1.Container{Name: "x"}) }, "nothing else"},
		"init container":   {func(s *corev1.PodSpec) { s.InitContainers = []corev1.Container{{Name: "x"}} }, "nothing else"},
		"no containers":    {func(s *corev1.PodSpec) { s.Containers = nil }, `named "squid"`},
		"no environment":   {func(s *corev1.PodSpec) { s.Containers[0].Env = nil }, "no environment variable SQUID_CONF"},
		"empty":            {func(s *corev1.PodSpec) { s.Containers[0].Env[1].Value = "" }, "SQUID_CONF is empty"},
		"from a configmap": {func(s *corev1.PodSpec) { s.Containers[0].Env[1].ValueFrom = &corev1.EnvVarSource{} }, "plain value"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := proxyPod("a", "http_port 1")
			tt.change(&pod.Spec)
			_, err := podConfig(pod)
			assert.ErrorContains(t, err, tt.says)
		})
	}
}
