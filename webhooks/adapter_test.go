package webhooks

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

func vmWorld(p *v1alpha1.Proxy) (*world, *Hooks) {
	cloud := &fakeAdapter{}
	return &world{proxy: p, cloud: cloud}, hooksWith(cloud)
}

func TestVMLifecycle(t *testing.T) {
	w, h := vmWorld(proxytest.Cloud())
	w.until(t, h, "Ready", w.leasable)
	require.Equal(t, "1001", w.proxy.Status.InstanceID, "the numeric id")
	require.Equal(t, "1001", w.probe.Spec.InstanceID)
	require.Equal(t, w.cloud.vm.ProviderID, w.proxy.Status.ProviderID)
	require.Zero(t, w.pods)

	w.proxy.Spec.Placement.Zone, w.proxy.Generation = "europe-west1-c", 4
	w.until(t, h, "replaced", func() bool { return w.leasable() && w.proxy.Status.InstanceID == "1002" })
	require.Equal(t, "zones/europe-west1-c/instances/"+v1alpha1.InstanceName(w.proxy.UID), w.proxy.Status.ProviderID)
	require.Equal(t, proxytest.Hash(w.proxy), w.proxy.Status.SpecHash)

	w.cloud.vm = nil // preempted
	w.until(t, h, "healed", func() bool { return w.leasable() && w.proxy.Status.InstanceID == "1003" })
	w.cloud.vm.State = adapter.StateStopped
	w.until(t, h, "healed again", func() bool { return w.leasable() && w.proxy.Status.InstanceID == "1004" })

	w.finalizing = true
	w.until(t, h, "gone", func() bool { return w.gone })
	require.Nil(t, w.cloud.vm)
	require.Nil(t, w.probe)
}

func TestVMAtRestAnswersStayTheSame(t *testing.T) {
	w, h := vmWorld(proxytest.Cloud())
	w.until(t, h, "Ready", w.leasable)
	w.sync(t, h)
	first := w.answer
	w.sync(t, h)
	require.Equal(t, string(first), string(w.answer))
	before := w.cloud.puts()
	w.sync(t, h)
	require.Equal(t, before+1, w.cloud.puts(), "one question a call")
	require.Empty(t, w.cloud.kills())
}

func TestAdapterRequests(t *testing.T) {
	p := proxytest.SecretRef()
	p.Finalizers, p.Spec.Provider, p.Spec.Placement = proxytest.Cloud().Finalizers, proxytest.CloudProvider, proxytest.Cloud().Spec.Placement
	p.Spec.Placement.NetworkTags, p.Spec.Placement.Spot = []v1alpha1.NetworkTag{"b", "a"}, true
	w, h := vmWorld(p)
	w.secrets = []*corev1.Secret{bootSecret("#cloud-config\nboot")}
	w.sync(t, h)
	require.Len(t, w.cloud.calls, 1)
	name := v1alpha1.InstanceName(p.UID)
	assert.Equal(t, fakeCall{Method: "PUT", Provider: proxytest.CloudProvider, Name: name, Put: &adapter.PutRequest{
		UID: string(p.UID), Namespace: "crawl", Proxy: "fra-1", Generation: 3, Port: 3128, Placement: *p.Spec.Placement,
		SpecHash: v1alpha1.SpecHash(p.Spec.Placement, "#cloud-config\nboot", 3128), UserData: "#cloud-config\nboot",
	}}, w.cloud.calls[0])

	w.until(t, h, "Ready", w.leasable)
	w.finalizing, w.cloud.calls = true, nil
	w.sync(t, h)
	assert.Equal(t, []fakeCall{{Method: "DELETE", Provider: proxytest.CloudProvider, Name: name, UID: string(p.UID), ProviderID: w.cloud.vm.ProviderID}}, w.cloud.calls)
}

// A rotated Secret is another VM.
func TestRotatedSecretReplacesTheVM(t *testing.T) {
	p := proxytest.SecretRef()
	p.Finalizers, p.Spec.Provider, p.Spec.Placement = proxytest.Cloud().Finalizers, proxytest.CloudProvider, proxytest.Cloud().Spec.Placement
	w, h := vmWorld(p)
	secret := bootSecret("v1")
	w.secrets = []*corev1.Secret{secret}
	w.until(t, h, "Ready", w.leasable)
	secret.Data["user-data"] = []byte("v2")
	w.until(t, h, "replaced", func() bool { return w.leasable() && w.proxy.Status.InstanceID == "1002" })
	w.secrets = nil
	for range 4 {
		w.round(t, h)
		require.True(t, w.leasable(), "a Secret that is gone takes nothing away")
		require.Equal(t, v1alpha1.ReasonCloudInitError, w.provisioned(t).Reason)
	}
}

// Asking again goes on with a replacement that was begun, and an edit that is
// taken back in time stops it.
func TestReplacementOfAVMIsRetriedAndCanBeReverted(t *testing.T) {
	w, h := vmWorld(proxytest.Cloud())
	w.until(t, h, "Ready", w.leasable)
	w.cloud.calls = nil
	w.proxy.Spec.Port = 3129
	w.sync(t, h)
	replaces := func() (out []string) {
		for _, c := range w.cloud.calls {
			out = append(out, c.Put.Replace)
		}
		return out
	}
	require.Equal(t, []string{"", "1001"}, replaces(), "observed, decided, sent")
	w.sync(t, h)
	require.Equal(t, []string{"", "1001", "1001"}, replaces(), "asking does not stop it")
	w.sync(t, hooksWith(w.cloud))
	require.Equal(t, []string{"", "1001", "1001", "1001"}, replaces(), "nor does a restart")

	w.proxy.Spec.Port = 3128
	w.sync(t, h)
	require.Empty(t, replaces()[4])
	w.until(t, h, "Ready as before", func() bool { return w.leasable() && w.proxy.Status.InstanceID == "1001" })
}

func TestVMsKeepToTheBudget(t *testing.T) {
	const size, limit = 10, 2
	o := testOptions()
	worlds := map[string]*fakeAdapter{}
	o.Adapter = fleetAdapter(worlds)
	h := New(o)
	fleet := readyFleetOf(t, h, size, worlds)
	pod := readyFleet(t, h, 1, proxytest.Managed)[0]
	for _, w := range fleet {
		w.proxy.Spec.Port = 3129
	}
	replaced := 0
	for range 150 {
		away := count(fleet, func(w *world) bool { w.round(t, h); return !w.leasable() })
		require.LessOrEqual(t, away, limit)
		if replaced = count(fleet, func(w *world) bool { return w.leasable() && w.proxy.Status.Port == 3129 }); replaced == size {
			break
		}
	}
	require.Equal(t, size, replaced)
	pod.round(t, h)
	assert.Equal(t, 1, h.budget.states()["pods"].seen, "each provider has a budget of its own")
}

// Without a finalize hook a VM may outlive its Proxy.
func TestNoVMWithoutTheFinalizer(t *testing.T) {
	now := metav1.NewTime(proxytest.Noon())
	for name, change := range map[string]func(p *v1alpha1.Proxy){
		metacontroller.Finalizer: func(p *v1alpha1.Proxy) { p.Finalizers = []string{"other-owner.example/s"} },
		"is being deleted":       func(p *v1alpha1.Proxy) { p.DeletionTimestamp = &now },
	} {
		w, h := vmWorld(proxytest.Cloud())
		change(w.proxy)
		w.sync(t, h)
		assert.Empty(t, w.cloud.calls)
		assert.Contains(t, w.provisioned(t).Message, name)
	}
}

// Whatever goes wrong at whatever moment of a replacement: nothing is given up,
// and once the adapter is back it goes on.
func TestAdapterUnavailableAtEveryStepOfAReplacement(t *testing.T) {
	for name, err := range adapterErrors() {
		for moment := range 9 {
			w, h := vmWorld(proxytest.Cloud())
			w.until(t, h, "Ready", w.leasable)
			w.proxy.Spec.Port, w.proxy.Generation = 3129, 4
			for range moment {
				w.round(t, h)
			}
			before, kills := w.proxy.Status.DeepCopy(), len(w.cloud.kills())
			w.cloud.err, w.cloud.stubborn = err, true
			for range 3 {
				w.round(t, h)
				s := w.proxy.Status
				require.Equal(t, []string{before.ProviderID, before.InstanceID, before.IP}, []string{s.ProviderID, s.InstanceID, s.IP}, "%s at %d", name, moment)
				if before.Phase == v1alpha1.PhaseReady {
					require.Equal(t, v1alpha1.PhaseReady, s.Phase, "%s at %d", name, moment)
				}
			}
			for _, c := range w.cloud.kills()[kills:] {
				require.Equal(t, before.InstanceID, c.Put.Replace, "only what was decided before is repeated")
			}
			w.cloud.err = nil
			w.until(t, h, "replaced", func() bool { return w.leasable() && w.proxy.Status.Port == 3129 })
			require.Equal(t, 2, w.cloud.made)
		}
	}
}

func TestBlockReasonShowsWithoutAnInstance(t *testing.T) {
	for name, want := range map[string]struct{ reason, message string }{
		"unavailable":      {v1alpha1.ReasonCloudAdapterUnavailable, "does not answer"},
		"not_ready":        {v1alpha1.ReasonCloudAdapterUnavailable, "is not ready: its instances are being listed for the first time"},
		"unknown_provider": {v1alpha1.ReasonUnknownProvider, `no provider "gcp-eu"`},
		"deleted":          {v1alpha1.ReasonPermanentError, "create it anew"},
		"invalid":          {v1alpha1.ReasonPermanentError, "port 0: want 1 to 65535"},
	} {
		w, h := vmWorld(proxytest.Cloud())
		w.cloud.err, w.cloud.stubborn = adapterErrors()[name], true
		for range 3 {
			w.round(t, h)
			assert.Equal(t, want.reason, w.provisioned(t).Reason)
			assert.Contains(t, w.provisioned(t).Message, want.message)
			assert.NotContains(t, w.provisioned(t).Message, "dial unix", "such words belong into the log")
		}
		assert.Equal(t, 3, w.cloud.puts(), "%s does not latch", name)
		w.cloud.err = nil
		w.until(t, h, "Ready", w.leasable)
	}
}

func TestCloudProviderWithoutAnAdapter(t *testing.T) {
	h := hooksWith(nil)
	w := &world{proxy: proxytest.Cloud()}
	w.sync(t, h)
	assert.Equal(t, v1alpha1.ReasonCloudAdapterUnavailable, w.provisioned(t).Reason)
	assert.Contains(t, w.provisioned(t).Message, "--cloud-socket")
	w.finalizing = true
	w.sync(t, h)
	assert.False(t, w.gone)
}
