package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream/upstreamtest"
)

func TestCloudAdapterKilledOnTheRealMetacontroller(t *testing.T) {
	program := upstreamtest.Program(t)
	for _, strategy := range upstream.Strategies() {
		t.Run(string(strategy), func(t *testing.T) {
			killTheAdapter(newRig(t).run(stack.Config{Metacontroller: program, ApplyStrategy: strategy}))
		})
	}
}

// killTheAdapter sends SIGKILL to the cloud adapter during an insert, a replacement and a deletion.
// Running VMs keep serving, no Proxy ever has two VMs, and in the end everything matches the specs.
func killTheAdapter(r *running) {
	t := r.t
	count := r.countVMs()
	r.vm("steady", "europe-west1-b")
	r.eventually("the first can be leased", func() bool { return r.offered()["steady"] })
	steady := r.statuses()["steady"]
	watch := r.watchOffers()

	r.vm("moving", "europe-west1-b")
	r.eventually("its VM is being made", func() bool { return len(r.vms()) == 2 })
	r.crashCloud()
	r.eventually("the second can be leased", func() bool { return r.offered()["moving"] })
	before := r.statuses()["moving"]

	r.patchProxy("moving", `{"spec":{"placement":{"zone":"us-central1-a"}}}`)
	r.eventually("its VM is on its way out", func() bool { return r.vms()[before.InstanceID] != "RUNNING" })
	r.crashCloud()
	r.eventually("it is replaced", func() bool {
		now := r.statuses()["moving"]
		return r.offered()["moving"] && now.InstanceID != before.InstanceID && now.ProviderID != before.ProviderID
	})

	// A VM that is deleted before the new adapter has listed it takes minutes to be confirmed gone;
	// this one is protected from deletion.
	moving := r.statuses()["moving"]
	r.protect(moving.ProviderID, true)
	require.NoError(t, r.proxies().Delete(t.Context(), "moving", metav1.DeleteOptions{}))
	r.eventually("its VM cannot be deleted", func() bool {
		c := meta.FindStatusCondition(r.statuses()["moving"].Conditions, v1alpha1.ConditionProvisioned)
		return c != nil && strings.Contains(c.Message, "the cloud reports: ")
	})
	r.crashCloud()
	assert.Contains(t, r.statuses(), "moving", "a Proxy goes after its VM, never before")
	r.protect(moving.ProviderID, false)
	r.eventually("it is gone", func() bool { _, found := r.statuses()["moving"]; return !found })
	assert.Len(t, r.vms(), 1)

	_, missed := watch()
	assert.Empty(t, missed, "what serves was on offer all the time")
	assert.Equal(t, steady.InstanceID, r.statuses()["steady"].InstanceID)
	require.NoError(t, r.proxies().Delete(t.Context(), "steady", metav1.DeleteOptions{}))
	r.eventually("all is gone", func() bool { return len(r.statuses()) == 0 })
	assert.Empty(t, r.vms())
	assert.Equal(t, map[string]int{"steady": 1, "moving": 1}, count(), "most VMs of a Proxy at once")
}

// crashCloud kills the adapter and waits until it is ready again. It acts once its predecessor's
// lease has expired.
func (r *running) crashCloud() {
	r.t.Helper()
	require.NoError(r.t, r.stack.Crash(r.t.Context(), "cloud"))
}

// protect sets or clears the deletion protection of a VM: providerID is zones/ZONE/instances/NAME.
func (r *running) protect(providerID string, protected bool) {
	r.t.Helper()
	parts := strings.Split(providerID, "/")
	require.Len(r.t, parts, 4, providerID)
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPut, r.facts.CloudVMsURL+"/"+parts[1]+"/"+parts[3],
		strings.NewReader(fmt.Sprintf(`{"protected":%t}`, protected)))
	require.NoError(r.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	require.NoError(r.t, resp.Body.Close())
	require.Equal(r.t, http.StatusNoContent, resp.StatusCode)
}

// vm creates a Proxy whose instance is a VM.
func (r *running) vm(name, zone string) {
	r.t.Helper()
	r.create(name, &v1alpha1.Proxy{Spec: v1alpha1.ProxySpec{
		Mode: v1alpha1.ModeManaged, Provider: r.facts.CloudProvider,
		Placement: &v1alpha1.Placement{Zone: zone, MachineType: "e2-micro", Image: "proxy"},
	}})
}

func (r *running) patchProxy(name, patch string) {
	r.t.Helper()
	_, err := r.proxies().Patch(r.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(r.t, err)
}

// standInVM is a VM as the cloud lists it.
type standInVM struct {
	ID, Status string
	Labels     map[string]string
}

func (r *running) standIn(ctx context.Context) ([]standInVM, error) {
	body, err := get(ctx, r.facts.CloudVMsURL, "")
	if err != nil {
		return nil, err
	}
	var vms []standInVM
	return vms, json.Unmarshal(body, &vms)
}

// vms are the statuses of the cloud's VMs, by id.
func (r *running) vms() map[string]string {
	r.t.Helper()
	list, err := r.standIn(r.t.Context())
	require.NoError(r.t, err)
	out := map[string]string{}
	for _, vm := range list {
		out[vm.ID] = vm.Status
	}
	return out
}

// countVMs polls the cloud. The returned function stops it and returns how many VMs each Proxy had
// at most.
func (r *running) countVMs() func() map[string]int {
	ctx, cancel := context.WithCancel(r.t.Context())
	most := map[string]int{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			list, err := r.standIn(ctx)
			if err != nil && ctx.Err() == nil {
				r.t.Error(fmt.Errorf("list the cloud's VMs: %w", err))
				return
			}
			now := map[string]int{}
			for _, vm := range list {
				now[vm.Labels["crawl-proxy"]]++
			}
			for proxy, n := range now {
				most[proxy] = max(most[proxy], n)
			}
		}
	})
	r.t.Cleanup(func() { cancel(); wg.Wait() })
	return func() map[string]int {
		cancel()
		wg.Wait()
		return most
	}
}

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
