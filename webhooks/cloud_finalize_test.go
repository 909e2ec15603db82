package webhooks

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

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

func TestAbandon(t *testing.T) {
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
func TestAskedForIsRemembered(t *testing.T) {
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
