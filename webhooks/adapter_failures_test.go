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

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

// A refusal for good is asked about once for each generation and hash.
func TestPermanentFailureLatches(t *testing.T) {
	w, h := vmWorld(proxytest.Cloud())
	w.cloud.failure = &adapter.Failure{Class: adapter.FailurePermanent, Message: "image squid-1 was not found"}
	w.sync(t, h)
	for range 4 {
		w.sync(t, hooksWith(w.cloud)) // also in other processes: the status is the memory
		assert.Equal(t, v1alpha1.PhaseFailed, w.proxy.Status.Phase)
		assert.Equal(t, v1alpha1.ReasonPermanentError, w.provisioned(t).Reason)
		assert.Equal(t, "image squid-1 was not found; not retried before the spec or the user data changes", w.provisioned(t).Message)
	}
	require.Equal(t, 1, w.cloud.puts(), "no further request")

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
	p := proxytest.SecretRef()
	p.Finalizers, p.Spec.Provider, p.Spec.Placement = proxytest.Cloud().Finalizers, proxytest.CloudProvider, proxytest.Cloud().Spec.Placement
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

// An answer that cannot be true is none.
func TestInconsistentRepliesAreUnavailable(t *testing.T) {
	change := func(f func(a *adapter.Instance)) *adapter.Instance { vm := proxytest.RunningVM(); f(vm); return vm }
	long := string(bytes.Repeat([]byte("x"), 600))
	for name, lie := range map[string]*adapter.Instance{
		"no state":              {},
		"unknown state":         change(func(a *adapter.Instance) { a.State = "Gone" }),
		"absent with an id":     {State: adapter.StateAbsent, InstanceID: proxytest.VMID},
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
			w, h := vmWorld(proxytest.Cloud())
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
			assert.False(t, w.gone, "no deletion is confirmed")
		})
	}
}

// A long or odd message does not keep the status from being written.
func TestCloudMessagesAreTruncated(t *testing.T) {
	w, h := vmWorld(proxytest.Cloud())
	w.cloud.failure = &adapter.Failure{Class: adapter.FailureQuotaExceeded, Message: string(bytes.Repeat([]byte("é"), 50_000))}
	w.sync(t, h)
	assert.LessOrEqual(t, len(w.provisioned(t).Message), 1000+40, "with what happens next")
	assert.True(t, json.Valid(w.answer))
}

func TestDeletionNeverLatches(t *testing.T) {
	w, h := vmWorld(proxytest.Cloud())
	w.cloud.failure = &adapter.Failure{Class: adapter.FailurePermanent, Message: "no"}
	w.sync(t, h)
	w.finalizing = true
	w.sync(t, h)
	require.True(t, w.gone)
	require.Equal(t, "DELETE", w.cloud.calls[1].Method)

	w, h = vmWorld(proxytest.Cloud())
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

func TestAbandonAnnotationFinalizesWithoutTheCloud(t *testing.T) {
	var logs bytes.Buffer
	o := testOptions()
	cloud := &fakeAdapter{}
	o.Adapter, o.Log, o.Registry = cloud, slog.New(slog.NewTextHandler(&logs, nil)), prometheus.NewRegistry()
	h := New(o)
	w := &world{proxy: proxytest.Cloud(), cloud: cloud}
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
	assert.InDelta(t, 1, testutil.ToFloat64(h.metrics.abandoned.WithLabelValues(proxytest.CloudProvider)), 0)
}

// A provider that is not in the config any more: what may run is not let go, and
// what never was lets the Proxy go.
func TestFinalizeOfAnUnknownProvider(t *testing.T) {
	unknown := func(p *v1alpha1.Proxy) *v1alpha1.Proxy { p.Spec.Provider = "gone"; return p }
	on := proxytest.SetCondition(unknown(proxytest.Cloud()), v1alpha1.ConditionProvisioned, no, v1alpha1.ReasonProvisioning, proxytest.Noon())
	on.Status.SpecHash = proxytest.OtherHash
	for name, tt := range map[string]struct {
		proxy   *v1alpha1.Proxy
		adapter Adapter
		gone    bool
	}{
		"a VM":                                      {proxytest.ServedBy(unknown(proxytest.Cloud()), proxytest.RunningVM()), strangers(), false},
		"a VM, no adapter":                          {proxytest.ServedBy(unknown(proxytest.Cloud()), proxytest.RunningVM()), nil, false},
		"asked for once":                            {on, strangers(), false},
		"asked for once, no adapter":                {on, nil, false},
		"never had one":                             {unknown(proxytest.Cloud()), strangers(), true},
		"never had one, no adapter":                 {unknown(proxytest.Cloud()), nil, true},
		"never had one, the adapter is away":        {unknown(proxytest.Cloud()), &fakeAdapter{err: adapterErrors()["unavailable"]}, false},
		"the adapter still knows it, and it is":     {unknown(proxytest.Cloud()), &fakeAdapter{vm: proxytest.RunningVM()}, false},
		"the adapter still knows it, and it is not": {proxytest.ServedBy(unknown(proxytest.Cloud()), proxytest.RunningVM()), &fakeAdapter{}, true},
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
func TestRequestedVMIsKeptInTheStatus(t *testing.T) {
	w, h := vmWorld(proxytest.Cloud())
	w.sync(t, h)
	require.Empty(t, w.proxy.Status.InstanceID)
	o := testOptions()
	o.Providers, o.Adapter = config.Providers{}, strangers()
	without := New(o)
	for range 2 {
		w.sync(t, without)
		require.Equal(t, v1alpha1.ReasonUnknownProvider, w.provisioned(t).Reason)
	}
	w.finalizing = true
	w.sync(t, without)
	require.False(t, w.gone, "a VM may be on its way")
}
