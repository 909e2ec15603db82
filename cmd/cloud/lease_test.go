package main

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync"
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
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/testwait"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// Processes on a real API server. The tests run at the same time, each with an
// installation and so a Lease of its own, since they mostly wait for leases to
// expire.
func TestWithAPIServer(t *testing.T) {
	t.Parallel()
	kubeconfig(t)
	var all sync.WaitGroup
	defer all.Wait()
	for name, test := range map[string]func(*testing.T){
		"TakesOverAtOnceFromAStoppedAdapter":      takesOverAtOnceFromAStoppedAdapter,
		"TakesOverFromAKilledAdapter":             takesOverFromAKilledAdapter,
		"FrozenAdapterDoesNotActPastItsLease":     frozenAdapterDoesNotActPastItsLease,
		"DeletesOrphansAndKeepsOwnedInstances":    deletesOrphansAndKeepsOwnedInstances,
		"DeletesNothingInADryRunOrWithANamespace": deletesNothingInADryRunOrWithANamespace,
	} {
		all.Go(func() { t.Run(name, test) })
	}
}

// installation of a test: the last part of its name.
func installation(t *testing.T) string { return strings.ToLower(path.Base(t.Name())) }

const fleet = 24

// two starts two adapters of one installation. The first one holds the lease and is
// making a fleet, at a few inserts per second.
func two(t *testing.T) (w *project, first, second *child) {
	t.Helper()
	cp := server.Get(t)
	w = newProject(t)
	args := []string{"--kubeconfig", cp.Kubeconfig(), "--system-namespace", "default", "--installation", installation(t)}
	first = w.start("first", args...)
	testwait.Eventually(t, "the first acts", first.acts)
	second = w.start("second", args...)
	testwait.Eventually(t, "the second serves", func() bool {
		_, err := second.List(t.Context())
		return errors.Is(err, adapter.ErrNotReady)
	})

	testwait.Eventually(t, "the first is at work", func() bool {
		first.putAll(t.Context(), fleet)
		return len(w.gce.VMs()) > 5
	})

	require.Less(t, len(w.gce.VMs()), fleet, "there is work left")
	require.Zero(t, w.by("second"))
	require.Zero(t, second.putAll(t.Context(), fleet), "the second answers not ready")
	return w, first, second
}

// leaseHolder is the holder of the test's Lease, empty after its release.
func leaseHolder(t *testing.T) string {
	t.Helper()
	l := controlplanetest.Lease(t, server.Get(t).RESTConfig(), "default", "cloud-"+installation(t))
	require.NotNil(t, l)
	return ptr.Deref(l.Spec.HolderIdentity, "")
}

func takesOverAtOnceFromAStoppedAdapter(t *testing.T) {
	w, first, second := two(t)
	holder := leaseHolder(t)
	require.NotEmpty(t, holder)
	first.signal(syscall.SIGTERM)
	require.NoError(t, first.cmd.Wait(), "a clean end")
	assert.NotEqual(t, holder, leaseHolder(t), "the lease was released: nobody waits until it runs out")
	testwait.Eventually(t, "the second acts", second.acts)
	sent := w.by("first") // its cancelled calls have arrived
	testwait.Eventually(t, "all run", func() bool { return second.putAll(t.Context(), fleet) == fleet })
	assert.Equal(t, sent, w.by("first"))
	assert.Len(t, w.gce.VMs(), fleet)
}

func takesOverFromAKilledAdapter(t *testing.T) {
	w, first, second := two(t)
	first.signal(syscall.SIGKILL)
	testwait.Eventually(t, "the second acts", second.acts)
	testwait.Eventually(t, "all run", func() bool { return second.putAll(t.Context(), fleet) == fleet })
	assert.Len(t, w.gce.VMs(), fleet)
}

// A process that is frozen past its lease, with pending inserts, must not send them
// when it continues.
func frozenAdapterDoesNotActPastItsLease(t *testing.T) {
	w, first, second := two(t)
	first.signal(syscall.SIGSTOP)
	testwait.Eventually(t, "the second acts", second.acts)
	sent := w.by("first") // its calls in flight have arrived
	testwait.Eventually(t, "the second is at work", func() bool {
		second.putAll(t.Context(), fleet)
		return w.by("second") > 3
	})

	first.signal(syscall.SIGCONT)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for ctx.Err() == nil { // while both run
		first.putAll(ctx, 1)
		second.putAll(ctx, fleet)
	}
	testwait.Eventually(t, "all run", func() bool { return second.putAll(t.Context(), fleet) == fleet })
	assert.Equal(t, sent, w.by("first"), "nothing was sent after it woke up")
	assert.False(t, first.acts())
	assert.True(t, second.acts(), "its return disturbs nobody")
	assert.Len(t, w.gce.VMs(), fleet)
}

// vmOf adds a VM with the label of uid.
func (w *project) vmOf(uid string) {
	w.t.Helper()
	_, err := w.gce.Add("europe-west1-c", &computepb.Instance{
		Name: ptr.To("old-" + uid[:8]), MachineType: ptr.To("zones/z/machineTypes/m"),
		Labels:            map[string]string{gcp.LabelInstallation: installation(w.t), gcp.LabelUID: uid, gcp.LabelSpecHash: "v1-aa"},
		Disks:             []*computepb.AttachedDisk{{Boot: ptr.To(true), InitializeParams: &computepb.AttachedDiskInitializeParams{SourceImage: ptr.To("i")}}},
		NetworkInterfaces: []*computepb.NetworkInterface{{AccessConfigs: []*computepb.AccessConfig{{Type: ptr.To("ONE_TO_ONE_NAT")}}}},
	})
	require.NoError(w.t, err)
}

func (w *project) uids() []string {
	var out []string
	for _, vm := range w.gce.VMs() {
		out = append(out, vm.Labels[gcp.LabelUID])
	}
	return out
}

// The orphan collector of the real process, with Proxies of a real API server: owned
// instances stay, also while their Proxy is being deleted; the orphans of a killed
// adapter are deleted.
func deletesOrphansAndKeepsOwnedInstances(t *testing.T) {
	cp := server.Get(t)
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

	w := newProject(t)
	for _, uid := range []string{alive, dying, "dead0000-0000-4000-8000-000000000000"} {
		w.vmOf(uid)
	}
	args := []string{"--kubeconfig", cp.Kubeconfig(), "--system-namespace", "default", "--installation", installation(t), "--gc-interval", "1s", "--gc-min-age", "2s"}
	first := w.start("first", args...)
	testwait.Eventually(t, "it acts", first.acts)
	// A requested instance without a Proxy, as after a crash, or when a Proxy vanished
	// without its finalizer.
	name, req := request(1)
	testwait.Eventually(t, "it runs", func() bool {
		got, err := first.Put(t.Context(), "gcp-eu", name, req)
		return err == nil && got.State == adapter.StateRunning
	})

	require.NoError(t, first.cmd.Process.Kill())
	second := w.start("second", args...)
	testwait.Eventually(t, "orphans are gone", func() bool { return len(w.gce.VMs()) == 2 })
	assert.ElementsMatch(t, []string{alive, dying}, w.uids())
	testwait.Eventually(t, "it says so", func() bool { return strings.Contains(second.out.String(), "deleting orphan") })
	require.Never(t, func() bool { return len(w.gce.VMs()) != 2 }, 3*time.Second, 100*time.Millisecond, "three more sweeps")
}

func deletesNothingInADryRunOrWithANamespace(t *testing.T) {
	cp := server.Get(t)
	w := newProject(t)
	w.vmOf("dead0000-0000-4000-8000-000000000000")
	common := []string{"--kubeconfig", cp.Kubeconfig(), "--system-namespace", "default", "--installation", installation(t), "--gc-interval", "1s", "--gc-min-age", "1s"}

	dry := w.start("dry", append(common, "--gc-dry-run")...)
	testwait.Eventually(t, "it says what it would do", func() bool { return strings.Contains(dry.out.String(), "orphan would be deleted") })
	require.NoError(t, dry.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, dry.cmd.Wait())

	guarded := w.start("guarded", append(common, "--namespace", "default")...)
	testwait.Eventually(t, "it says why it does not", func() bool {
		return strings.Contains(guarded.out.String(), "--namespace is set, so that Proxies in other namespaces are not seen")
	})

	require.Never(t, func() bool { return len(w.gce.VMs()) == 0 }, 3*time.Second, 100*time.Millisecond, "three sweeps")
}
