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

func TestLifeOfAVM(t *testing.T) {
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

func TestVMAtRestNothingMoves(t *testing.T) {
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

func TestWhatTheAdapterIsAskedFor(t *testing.T) {
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
func TestReplacementIsRepeatedAndCanBeTakenBack(t *testing.T) {
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
	require.Equal(t, []string{"", "1001"}, replaces(), "observed, decided, told")
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

// A VM may outlive a Proxy that nobody finalizes.
func TestNoVMWithoutTheFinalizer(t *testing.T) {
	now := metav1.NewTime(proxytest.Noon())
	for name, change := range map[string]func(p *v1alpha1.Proxy){
		metacontroller.Finalizer: func(p *v1alpha1.Proxy) { p.Finalizers = []string{"somebody.else/s"} },
		"is being deleted":       func(p *v1alpha1.Proxy) { p.DeletionTimestamp = &now },
	} {
		w, h := vmWorld(proxytest.Cloud())
		change(w.proxy)
		w.sync(t, h)
		assert.Empty(t, w.cloud.calls)
		assert.Contains(t, w.provisioned(t).Message, name)
	}
}
