package webhooks

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

// Whatever goes wrong at whatever moment of a replacement: nothing is given up,
// and once the adapter is back it goes on.
func TestNoAnswerAtEveryMomentOfAReplacement(t *testing.T) {
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

func TestWithoutAnInstanceTheTroubleShows(t *testing.T) {
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

func TestWithoutAnAdapter(t *testing.T) {
	h := hooksWith(nil)
	w := &world{proxy: proxytest.Cloud()}
	w.sync(t, h)
	assert.Equal(t, v1alpha1.ReasonCloudAdapterUnavailable, w.provisioned(t).Reason)
	assert.Contains(t, w.provisioned(t).Message, "--cloud-socket")
	w.finalizing = true
	w.sync(t, h)
	assert.False(t, w.gone)
}

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
func TestLiesAreNoAnswers(t *testing.T) {
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
			assert.False(t, w.gone, "nobody has confirmed anything")
		})
	}
}

// A long or odd message does not keep the status from being written.
func TestMessagesOfTheCloudAreBounded(t *testing.T) {
	w, h := vmWorld(proxytest.Cloud())
	w.cloud.failure = &adapter.Failure{Class: adapter.FailureQuotaExceeded, Message: string(bytes.Repeat([]byte("é"), 50_000))}
	w.sync(t, h)
	assert.LessOrEqual(t, len(w.provisioned(t).Message), 1000+10)
	assert.True(t, json.Valid(w.answer))
}
