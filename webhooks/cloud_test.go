package webhooks

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

func vmWorld(p *v1alpha1.Proxy) (*world, *Hooks) {
	cloud := &fakeAdapter{}
	return &world{proxy: p, cloud: cloud}, hooksWith(cloud)
}

func TestLifeOfAVM(t *testing.T) {
	w, h := vmWorld(vmProxy())
	w.until(t, h, "Ready", w.leasable)
	require.Equal(t, "1001", w.proxy.Status.InstanceID, "the numeric id")
	require.Equal(t, "1001", w.probe.Spec.InstanceID)
	require.Equal(t, w.cloud.vm.ProviderID, w.proxy.Status.ProviderID)
	require.Zero(t, w.pods)

	w.proxy.Spec.Placement.Zone, w.proxy.Generation = "europe-west1-c", 4
	w.until(t, h, "replaced", func() bool { return w.leasable() && w.proxy.Status.InstanceID == "1002" })
	require.Equal(t, "zones/europe-west1-c/instances/"+v1alpha1.InstanceName(w.proxy.UID), w.proxy.Status.ProviderID)
	require.Equal(t, wantedHash(w.proxy), w.proxy.Status.SpecHash)

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
	w, h := vmWorld(vmProxy())
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
	p := secretRefProxy()
	p.Finalizers, p.Spec.Provider, p.Spec.Placement = vmProxy().Finalizers, cloudProvider, vmProxy().Spec.Placement
	p.Spec.Placement.NetworkTags, p.Spec.Placement.Spot = []v1alpha1.NetworkTag{"b", "a"}, true
	w, h := vmWorld(p)
	w.secrets = []*corev1.Secret{bootSecret("#cloud-config\nboot")}
	w.sync(t, h)
	require.Len(t, w.cloud.calls, 1)
	name := v1alpha1.InstanceName(p.UID)
	assert.Equal(t, fakeCall{Method: "PUT", Provider: cloudProvider, Name: name, Put: &adapter.PutRequest{
		UID: string(p.UID), Namespace: "crawl", Proxy: "fra-1", Generation: 3, Port: 3128, Placement: *p.Spec.Placement,
		SpecHash: v1alpha1.SpecHash(p.Spec.Placement, "#cloud-config\nboot", 3128), UserData: "#cloud-config\nboot",
	}}, w.cloud.calls[0])

	w.until(t, h, "Ready", w.leasable)
	w.finalizing, w.cloud.calls = true, nil
	w.sync(t, h)
	assert.Equal(t, []fakeCall{{Method: "DELETE", Provider: cloudProvider, Name: name, UID: string(p.UID), ProviderID: w.cloud.vm.ProviderID}}, w.cloud.calls)
}

// A rotated Secret is another VM.
func TestRotatedSecretReplacesTheVM(t *testing.T) {
	p := secretRefProxy()
	p.Finalizers, p.Spec.Provider, p.Spec.Placement = vmProxy().Finalizers, cloudProvider, vmProxy().Spec.Placement
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
	w, h := vmWorld(vmProxy())
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
	require.Equal(t, "", replaces()[4])
	w.until(t, h, "Ready as before", func() bool { return w.leasable() && w.proxy.Status.InstanceID == "1001" })
}

func TestVMsKeepToTheBudget(t *testing.T) {
	const size, limit = 10, 2
	o := testOptions()
	worlds := map[string]*fakeAdapter{}
	o.Adapter = fleetAdapter(worlds)
	h := New(o)
	fleet := readyFleetOf(t, h, size, worlds)
	pod := readyFleet(t, h, 1, managedProxy)[0]
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

// Whatever goes wrong at whatever moment of a replacement: nothing is given up,
// and once the adapter is back it goes on.
func TestNoAnswerAtEveryMomentOfAReplacement(t *testing.T) {
	for name, err := range adapterErrors() {
		for moment := range 9 {
			w, h := vmWorld(vmProxy())
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

func TestWithoutAnInstanceTheTroubleShows(t *testing.T) {
	for name, want := range map[string]struct{ reason, message string }{
		"unavailable":      {v1alpha1.ReasonCloudAdapterUnavailable, "does not answer"},
		"not_ready":        {v1alpha1.ReasonCloudAdapterUnavailable, "cannot tell yet: its instances are being listed for the first time"},
		"unknown_provider": {v1alpha1.ReasonUnknownProvider, `no provider "gcp-eu"`},
		"deleted":          {v1alpha1.ReasonPermanentError, "create it anew"},
		"invalid":          {v1alpha1.ReasonPermanentError, "port 0: want 1 to 65535"},
	} {
		w, h := vmWorld(vmProxy())
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

func TestWithoutAnAdapter(t *testing.T) {
	h := hooksWith(nil)
	w := &world{proxy: vmProxy()}
	w.sync(t, h)
	assert.Equal(t, v1alpha1.ReasonCloudAdapterUnavailable, w.provisioned(t).Reason)
	assert.Contains(t, w.provisioned(t).Message, "--cloud-socket")
	w.finalizing = true
	w.sync(t, h)
	assert.False(t, w.gone)
}

// A refusal for good is asked about once for each generation and hash.
func TestPermanentFailureLatches(t *testing.T) {
	w, h := vmWorld(vmProxy())
	w.cloud.failure = &adapter.Failure{Class: adapter.FailurePermanent, Message: "image squid-1 was not found"}
	w.sync(t, h)
	for range 4 {
		w.sync(t, hooksWith(w.cloud)) // also in other processes: the status is the memory
		assert.Equal(t, v1alpha1.PhaseFailed, w.proxy.Status.Phase)
		assert.Equal(t, v1alpha1.ReasonPermanentError, w.provisioned(t).Reason)
		assert.Equal(t, "image squid-1 was not found"+latchNote, w.provisioned(t).Message)
	}
	require.Equal(t, 1, w.cloud.puts(), "nobody is asked again")

	w.proxy.Generation++ // such as an edit of attributes
	w.sync(t, h)
	require.Equal(t, 2, w.cloud.puts())
	w.sync(t, h)
	require.Equal(t, 2, w.cloud.puts())

	w.proxy.Spec.Placement.Image = "squid-2" // the hash alone
	w.cloud.failure = nil
	w.until(t, h, "Ready", w.leasable)
}

func TestRotatedSecretUnlatches(t *testing.T) {
	p := secretRefProxy()
	p.Finalizers, p.Spec.Provider, p.Spec.Placement = vmProxy().Finalizers, cloudProvider, vmProxy().Spec.Placement
	w, h := vmWorld(p)
	secret := bootSecret("v1")
	w.secrets = []*corev1.Secret{secret}
	w.cloud.failure = &adapter.Failure{Class: adapter.FailurePermanent, Message: "no"}
	for range 3 {
		w.sync(t, h)
	}
	require.Equal(t, 1, w.cloud.puts())
	secret.Data["user-data"] = []byte("v2")
	w.cloud.failure = nil
	w.until(t, h, "Ready", w.leasable)
}

func TestDeletionNeverLatches(t *testing.T) {
	w, h := vmWorld(vmProxy())
	w.cloud.failure = &adapter.Failure{Class: adapter.FailurePermanent, Message: "no"}
	w.sync(t, h)
	w.finalizing = true
	w.sync(t, h)
	require.True(t, w.gone)
	require.Equal(t, "DELETE", w.cloud.calls[1].Method)

	w, h = vmWorld(vmProxy())
	w.until(t, h, "Ready", w.leasable)
	w.finalizing = true
	for name, err := range adapterErrors() {
		w.cloud.err, w.cloud.stubborn = err, true
		for range 2 {
			calls := len(w.cloud.calls)
			w.round(t, h)
			require.False(t, w.gone, name)
			require.Len(t, w.cloud.calls, calls+1, "it is asked every time")
			require.Equal(t, "1001", w.proxy.Status.InstanceID)
		}
	}
	w.cloud.err = nil
	w.until(t, h, "gone", func() bool { return w.gone })
	require.Nil(t, w.cloud.vm)
}

func TestAbandon(t *testing.T) {
	var logs bytes.Buffer
	o := testOptions()
	cloud := &fakeAdapter{}
	o.Adapter, o.Log, o.Registry = cloud, slog.New(slog.NewTextHandler(&logs, nil)), prometheus.NewRegistry()
	h := New(o)
	w := &world{proxy: vmProxy(), cloud: cloud}
	w.until(t, h, "Ready", w.leasable)
	cloud.calls, cloud.err, cloud.stubborn = nil, adapterErrors()["unavailable"], true
	w.finalizing = true
	w.round(t, h)
	require.False(t, w.gone)
	require.Contains(t, w.provisioned(t).Message, v1alpha1.AnnotationAbandon)

	cloud.calls = nil
	w.proxy.Annotations = map[string]string{v1alpha1.AnnotationAbandon: v1alpha1.ValueTrue}
	w.until(t, h, "gone", func() bool { return w.gone })
	require.Empty(t, cloud.calls, "the cloud is not asked")
	require.Nil(t, w.probe)
	assert.Contains(t, w.provisioned(t).Message, "may run on and cost money")
	assert.Contains(t, logs.String(), "level=WARN msg=\"ABANDONED")
	assert.Contains(t, logs.String(), "instanceID=1001")
	assert.InDelta(t, 1, testutil.ToFloat64(h.metrics.abandoned.WithLabelValues(cloudProvider)), 0)
}

// A provider that is not in the config any more: what may run is not let go, and
// what never was lets the Proxy go.
func TestFinalizeOfAnUnknownProvider(t *testing.T) {
	unknown := func(p *v1alpha1.Proxy) *v1alpha1.Proxy { p.Spec.Provider = "gone"; return p }
	on := withCondition(unknown(vmProxy()), v1alpha1.ConditionProvisioned, no, v1alpha1.ReasonProvisioning, noon())
	on.Status.SpecHash = otherHash
	for name, tt := range map[string]struct {
		proxy   *v1alpha1.Proxy
		adapter Adapter
		gone    bool
	}{
		"a VM":                                      {servedBy(unknown(vmProxy()), runningVM()), strangers(), false},
		"a VM, no adapter":                          {servedBy(unknown(vmProxy()), runningVM()), nil, false},
		"asked for once":                            {on, strangers(), false},
		"asked for once, no adapter":                {on, nil, false},
		"never had one":                             {unknown(vmProxy()), strangers(), true},
		"never had one, no adapter":                 {unknown(vmProxy()), nil, true},
		"never had one, the adapter is away":        {unknown(vmProxy()), &fakeAdapter{err: adapterErrors()["unavailable"]}, false},
		"the adapter still knows it, and it is":     {unknown(vmProxy()), &fakeAdapter{vm: runningVM()}, false},
		"the adapter still knows it, and it is not": {servedBy(unknown(vmProxy()), runningVM()), &fakeAdapter{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{proxy: tt.proxy.DeepCopy(), finalizing: true}
			w.sync(t, hooksWith(tt.adapter))
			assert.Equal(t, tt.gone, w.gone)
			if !tt.gone {
				w.proxy.Annotations = map[string]string{v1alpha1.AnnotationAbandon: v1alpha1.ValueTrue}
				h := hooksWith(tt.adapter)
				w.sync(t, h)
				assert.True(t, w.gone, "there is always a way out")
				assert.InDelta(t, 1, testutil.ToFloat64(h.metrics.abandoned.WithLabelValues(unknownProvider)), 0)
				assert.Equal(t, 1, testutil.CollectAndCount(h.metrics.abandoned), "made-up names are no labels")
			}
		})
	}
}

// The mark that a VM was asked for survives a provider's absence.
func TestAskedForIsRemembered(t *testing.T) {
	w, h := vmWorld(vmProxy())
	w.sync(t, h)
	require.Empty(t, w.proxy.Status.InstanceID)
	o := testOptions()
	o.Providers, o.Adapter = Providers{}, strangers()
	without := New(o)
	for range 2 {
		w.sync(t, without)
		require.Equal(t, v1alpha1.ReasonUnknownProvider, w.provisioned(t).Reason)
	}
	w.finalizing = true
	w.sync(t, without)
	require.False(t, w.gone, "a VM may be on its way")
}

// A VM may outlive a Proxy that nobody finalizes.
func TestNoVMWithoutTheFinalizer(t *testing.T) {
	now := metav1.NewTime(noon())
	for name, change := range map[string]func(p *v1alpha1.Proxy){
		metacontroller.Finalizer: func(p *v1alpha1.Proxy) { p.Finalizers = []string{"somebody.else/s"} },
		"is being deleted":       func(p *v1alpha1.Proxy) { p.DeletionTimestamp = &now },
	} {
		w, h := vmWorld(vmProxy())
		change(w.proxy)
		w.sync(t, h)
		assert.Empty(t, w.cloud.calls)
		assert.Contains(t, w.provisioned(t).Message, name)
	}
}

// An answer that cannot be true is none.
func TestLiesAreNoAnswers(t *testing.T) {
	change := func(f func(a *adapter.Instance)) *adapter.Instance { vm := runningVM(); f(vm); return vm }
	long := string(bytes.Repeat([]byte("x"), 600))
	for name, lie := range map[string]*adapter.Instance{
		"no state":              {},
		"unknown state":         change(func(a *adapter.Instance) { a.State = "Gone" }),
		"absent with an id":     {State: adapter.StateAbsent, InstanceID: testVM},
		"absent with an IP":     {State: adapter.StateAbsent, IP: "203.0.113.7"},
		"runs without an id":    change(func(a *adapter.Instance) { a.InstanceID = "" }),
		"runs nowhere":          change(func(a *adapter.Instance) { a.ProviderID = "" }),
		"no IP":                 change(func(a *adapter.Instance) { a.IP = "203.0.113" }),
		"a host name":           change(func(a *adapter.Instance) { a.IP = "evil.example" }),
		"huge id":               change(func(a *adapter.Instance) { a.InstanceID = long }),
		"huge provider id":      change(func(a *adapter.Instance) { a.ProviderID = long }),
		"huge hash":             change(func(a *adapter.Instance) { a.SpecHash = long }),
		"negative port":         change(func(a *adapter.Instance) { a.Port = -1 }),
		"a port beyond the end": change(func(a *adapter.Instance) { a.Port = 65536 }),
	} {
		t.Run(name, func(t *testing.T) {
			w, h := vmWorld(vmProxy())
			w.cloud.lie = lie
			w.sync(t, h)
			assert.Equal(t, v1alpha1.ReasonCloudAdapterUnavailable, w.provisioned(t).Reason)
			w.cloud.lie = nil
			w.until(t, h, "Ready", w.leasable)
			w.cloud.lie = lie
			before := *w.proxy.Status.DeepCopy()
			w.sync(t, h)
			assert.Equal(t, before, w.proxy.Status)
			w.finalizing = true
			w.sync(t, h)
			assert.False(t, w.gone, "nobody has confirmed anything")
		})
	}
}

// A long or odd message does not keep the status from being written.
func TestMessagesOfTheCloudAreBounded(t *testing.T) {
	w, h := vmWorld(vmProxy())
	w.cloud.failure = &adapter.Failure{Class: adapter.FailureQuotaExceeded, Message: string(bytes.Repeat([]byte("é"), 50_000))}
	w.sync(t, h)
	assert.LessOrEqual(t, len(w.provisioned(t).Message), maxWords+10)
	assert.True(t, json.Valid(w.answer))
}
