package main

import (
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// An orphan: Metacontroller created the child after an outage of the API server, and its stale
// cache did not have it when the Proxy was deleted. The orphan must not block its name.
func orphanDoesNotBlockTheNextProxyOfItsName(r *running) {
	const name = "fra-1"
	t := r.t
	gone := metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion().String(), Kind: "Proxy", Name: name, UID: "80169618-fb2c-4f63-9509-95fec86dc12d",
		Controller: new(true), BlockOwnerDeletion: new(true),
	}
	probe := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": "ProxyProbe",
		"spec": map[string]any{"instanceID": "old", "host": "192.0.2.1", "port": int64(3128)},
	}}
	probe.SetName(name)
	probe.SetOwnerReferences([]metav1.OwnerReference{gone})
	_, err := r.api.Resource(v1alpha1.ProxyProbeResource()).Namespace(r.facts.Namespace).Create(t.Context(), probe, metav1.CreateOptions{})
	require.NoError(t, err)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.InstanceName(gone.UID), OwnerReferences: []metav1.OwnerReference{gone}},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "squid", Image: "squid"}}},
	}
	_, err = r.core.CoreV1().Pods(r.facts.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)

	r.managed(name, "")
	r.eventually("the next Proxy of that name is leasable", func() bool { return r.offered()[name] })
	r.eventually("no orphan is left", func() bool {
		pods, err := r.core.CoreV1().Pods(r.facts.Namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(pods.Items) == 1
	})
	require.NoError(t, r.proxies().Delete(t.Context(), name, metav1.DeleteOptions{}))
	r.eventually("all is gone", func() bool { return len(r.statuses()) == 0 })
}
