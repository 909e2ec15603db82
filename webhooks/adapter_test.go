package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
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

// fleetAdapter is an adapter of many VMs, by their UIDs.
type fleetAdapter map[string]*fakeAdapter

func (f fleetAdapter) of(uid string) (*fakeAdapter, error) {
	if a := f[uid]; a != nil {
		return a, nil
	}
	return nil, fmt.Errorf("%w: no such uid: %s", adapter.ErrInvalid, uid)
}

func (f fleetAdapter) Put(ctx context.Context, provider, name string, req adapter.PutRequest) (adapter.Instance, error) {
	a, err := f.of(req.UID)
	if err != nil {
		return adapter.Instance{}, err
	}
	return a.Put(ctx, provider, name, req)
}

func (f fleetAdapter) Delete(ctx context.Context, provider, name, uid, providerID string) (adapter.Instance, error) {
	a, err := f.of(uid)
	if err != nil {
		return adapter.Instance{}, err
	}
	return a.Delete(ctx, provider, name, uid, providerID)
}

// readyFleetOf are that many Proxies with VMs, all Ready.
func readyFleetOf(t *testing.T, h *Hooks, size int, clouds fleetAdapter) []*world {
	t.Helper()
	fleet := make([]*world, size)
	for i := range fleet {
		p := proxytest.Cloud()
		p.UID, p.Name = types.UID(fmt.Sprintf("vm-uid-%d", i)), fmt.Sprintf("vm-%d", i)
		clouds[string(p.UID)] = &fakeAdapter{}
		fleet[i] = &world{proxy: p, cloud: clouds[string(p.UID)]}
		fleet[i].until(t, h, "Ready", fleet[i].leasable)
	}
	require.Len(t, clouds, size)
	return fleet
}

// slowAdapter takes a while for each answer, and gives up when its caller does.
type slowAdapter struct {
	fakeAdapter
	takes time.Duration
}

func (s *slowAdapter) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", adapter.ErrUnavailable, ctx.Err())
	case <-time.After(s.takes):
		return nil
	}
}

func (s *slowAdapter) Put(ctx context.Context, provider, name string, req adapter.PutRequest) (adapter.Instance, error) {
	if err := s.wait(ctx); err != nil {
		return adapter.Instance{}, err
	}
	return s.fakeAdapter.Put(ctx, provider, name, req)
}

func (s *slowAdapter) Delete(ctx context.Context, provider, name, uid, providerID string) (adapter.Instance, error) {
	if err := s.wait(ctx); err != nil {
		return adapter.Instance{}, err
	}
	return s.fakeAdapter.Delete(ctx, provider, name, uid, providerID)
}

// metacontrollerTimeout is that of the hooks in the CompositeController.
const metacontrollerTimeout = 10 * time.Second

// However long the adapter takes, a hook answers well before Metacontroller
// gives up, and an adapter that hangs costs that only once in a while.
func TestSlowAdapterDelaysHooksWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowAdapter{takes: time.Hour}
		slow.vm = proxytest.RunningVM()
		o := testOptions()
		o.Adapter, o.Clock = slow, clock.RealClock{}
		h := New(o)
		serving := proxytest.ServedBy(proxytest.Cloud(), proxytest.RunningVM())
		call := func(finalizing bool) (took time.Duration) {
			start := time.Now()
			r := request{proxy: serving, finalizing: finalizing}
			hook := map[bool]string{false: "sync", true: "finalize"}[finalizing]
			a := v2Of(t, answerTo(t, h, hook, r.body(t)))
			require.False(t, *a.Finalized)
			if !finalizing {
				require.Equal(t, string(v1alpha1.PhaseProbing), a.phase(), "it serves on")
				require.Equal(t, "203.0.113.7", a.Status["ip"])
			}
			return time.Since(start)
		}
		require.Less(t, adapterTimeout, metacontrollerTimeout/4)
		for range 3 {
			for _, finalizing := range []bool{false, true} {
				assert.Equal(t, adapterTimeout, call(finalizing))
				for range 50 {
					assert.Zero(t, call(finalizing), "the others do not wait")
				}
				time.Sleep(adapterCooldown)
			}
		}
		assert.InDelta(t, 150, testutil.ToFloat64(h.metrics.adapter.WithLabelValues("put", "skipped")), 0)
		assert.InDelta(t, 3, testutil.ToFloat64(h.metrics.adapter.WithLabelValues("delete", "unavailable")), 0)

		slow.takes = time.Millisecond
		assert.Equal(t, time.Millisecond, call(false), "back again")

		// Two requests, each nearly as long as the timeout.
		slow.takes = adapterTimeout * 3 / 4
		serving.Spec.Port = 3129
		assert.Equal(t, adapterTimeout, call2(t, h, serving), "one bound for both")
	})
}

func call2(t *testing.T, h *Hooks, p *v1alpha1.Proxy) time.Duration {
	t.Helper()
	start := time.Now()
	a := v2Of(t, answerTo(t, h, "sync", request{proxy: p}.body(t)))
	require.Equal(t, v1alpha1.ReasonReplacing, a.reason())
	return time.Since(start)
}

// A caller that gives up does not make the adapter look hung.
func TestCanceledRequestStartsNoAdapterCooldown(t *testing.T) {
	h := hooksWith(&slowAdapter{takes: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.sync(ctx, bytes.NewReader(request{proxy: proxytest.Cloud()}.body(t)))
	require.NoError(t, err)
	assert.Zero(t, h.adapter.cooldown.Load())
}

// What is behind the socket may answer anything at all.
func TestMalformedAdapterRepliesKeepTheInstance(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"malformed":    func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"state":"Running`) },
		"another type": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `[{"state":"Absent"}]`) },
		"null":         func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `null`) },
		"empty":        func(http.ResponseWriter, *http.Request) {},
		"no content":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"huge": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"state":"Absent","failure":{"class":"Permanent","message":"%s"}}`, strings.Repeat("x", adapter.MaxAnswerBytes))
		},
		"broken off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"state":"Absent"}`)
		},
		"a web page":      func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) },
		"a redirect":      func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/v1/instances", http.StatusFound) },
		"a panic":         func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"absent, and not": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"state":"Absent","instanceID":"7"}`) },
	} {
		t.Run(name, func(t *testing.T) {
			h := hooksWith(clientOf(t, handler))
			w := &world{proxy: proxytest.ServedBy(proxytest.Cloud(), proxytest.RunningVM()), probe: proxytest.Probe(proxytest.VMID, v1alpha1.VerdictHealthy)}
			before := *w.proxy.Status.DeepCopy()
			w.sync(t, h)
			assert.Equal(t, v1alpha1.PhaseReady, w.proxy.Status.Phase)
			assert.Equal(t, before.InstanceID, w.proxy.Status.InstanceID)
			assert.Equal(t, before.IP, w.proxy.Status.IP)
			w.finalizing = true
			for range 3 {
				w.sync(t, h)
			}
			assert.False(t, w.gone)

			fresh := &world{proxy: proxytest.Cloud()}
			fresh.sync(t, h)
			assert.Equal(t, v1alpha1.ReasonCloudAdapterUnavailable, fresh.provisioned(t).Reason)
		})
	}
}

// clientOf is a client of an adapter that answers so.
func clientOf(t *testing.T, handler http.HandlerFunc) *adapter.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	require.NoError(t, err)
	srv := httptest.NewUnstartedServer(handler)
	srv.Listener = ln
	srv.Start()
	t.Cleanup(srv.Close)
	c := adapter.NewClient(socket, time.Minute)
	t.Cleanup(c.Close)
	return c
}
