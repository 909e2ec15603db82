package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcp"
)

// vmOf adds a VM with the label of uid.
func (w *world) vmOf(uid string) {
	w.t.Helper()
	_, err := w.gce.Add("europe-west1-c", &computepb.Instance{
		Name: ptr.To("old-" + uid[:8]), MachineType: ptr.To("zones/z/machineTypes/m"),
		Labels:            map[string]string{gcp.LabelInstallation: "gc", gcp.LabelUID: uid, gcp.LabelSpecHash: "v1-aa"},
		Disks:             []*computepb.AttachedDisk{{Boot: ptr.To(true), InitializeParams: &computepb.AttachedDiskInitializeParams{SourceImage: ptr.To("i")}}},
		NetworkInterfaces: []*computepb.NetworkInterface{{AccessConfigs: []*computepb.AccessConfig{{Type: ptr.To("ONE_TO_ONE_NAT")}}}},
	})
	require.NoError(w.t, err)
}

func (w *world) uids() []string {
	var out []string
	for _, vm := range w.gce.VMs() {
		out = append(out, vm.Labels[gcp.LabelUID])
	}
	return out
}

// The collector of the real process, with Proxies of a real API server: what is
// owned stays, also while its owner is being deleted; what a killed adapter left
// behind goes.
func TestOrphansGoAndOwnedInstancesStay(t *testing.T) {
	cp := kubeconfig(t)
	client, err := dynamic.NewForConfig(cp.RESTConfig())
	require.NoError(t, err)
	proxies := client.Resource(v1alpha1.ProxyResource()).Namespace("default")
	create := func(name string) string {
		obj := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion().String(), "kind": "Proxy",
			"metadata": map[string]any{"name": name, "finalizers": []any{"example.com/keep"}},
			"spec":     map[string]any{"mode": "Managed", "provider": "gcp-eu"},
		}}
		made, err := proxies.Create(t.Context(), obj, metav1.CreateOptions{})
		require.NoError(t, err)
		return string(made.GetUID())
	}
	alive, dying := create("alive"), create("dying")
	require.NoError(t, proxies.Delete(t.Context(), "dying", metav1.DeleteOptions{}))

	w := newWorld(t)
	for _, uid := range []string{alive, dying, "dead0000-0000-4000-8000-000000000000"} {
		w.vmOf(uid)
	}
	args := []string{"--kubeconfig", cp.Kubeconfig(), "--system-namespace", "default", "--installation", "gc", "--gc-interval", "2s", "--gc-min-age", "2s"}
	first := w.start("first", args...)
	eventually(t, "it acts", first.acts)
	// An instance that is asked for, whose Proxy nobody knows: as after a
	// crash, or when a Proxy vanished without its finalizer.
	name, req := request(1)
	eventually(t, "it runs", func() bool {
		got, err := first.Put(t.Context(), "gcp-eu", name, req)
		return err == nil && got.State == adapter.StateRunning
	})
	require.NoError(t, first.cmd.Process.Kill())
	second := w.start("second", args...)
	eventually(t, "orphans are gone", func() bool { return len(w.gce.VMs()) == 2 })
	assert.ElementsMatch(t, []string{alive, dying}, w.uids())
	eventually(t, "it says so", func() bool { return strings.Contains(second.out.String(), "deleting orphan") })
	require.Never(t, func() bool { return len(w.gce.VMs()) != 2 }, 5*time.Second, 100*time.Millisecond)
}

func TestDryRunAndNamespaceGuardOfTheProcess(t *testing.T) {
	cp := kubeconfig(t)
	w := newWorld(t)
	w.vmOf("dead0000-0000-4000-8000-000000000000")
	common := []string{"--kubeconfig", cp.Kubeconfig(), "--system-namespace", "default", "--installation", "gc", "--gc-interval", "1s", "--gc-min-age", "1s"}

	dry := w.start("dry", append(common, "--gc-dry-run")...)
	eventually(t, "it says what it would do", func() bool { return strings.Contains(dry.out.String(), "orphan would be deleted") })
	require.NoError(t, dry.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, dry.cmd.Wait())

	guarded := w.start("guarded", append(common, "--namespace", "default")...)
	eventually(t, "it says why it does not", func() bool {
		return strings.Contains(guarded.out.String(), "--namespace is set, so that Proxies in other namespaces are not seen")
	})
	require.Never(t, func() bool { return len(w.gce.VMs()) == 0 }, 4*time.Second, 100*time.Millisecond)
}
