package proxy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

// troubles are the ways in which the wanted state can be unknown.
func troubles() map[string]func(o *Observation) {
	return map[string]func(o *Observation){
		v1alpha1.ReasonUnknownProvider: func(o *Observation) { o.Provider = nil },
		v1alpha1.ReasonCloudInitError:  func(o *Observation) { o.CloudInit = CloudInit{Problem: "secret crawl/x was not found"} },
	}
}

func TestDecideUnknownNeverMeansDelete(t *testing.T) {
	drift := testTiming().DriftPoll
	for reason, trouble := range troubles() {
		with := func(change func(o *Observation)) func(o *Observation) {
			return func(o *Observation) { change(o); trouble(o) }
		}
		healthy := proxytest.Probe(proxytest.PodID, v1alpha1.VerdictHealthy)
		for _, r := range []row{
			{"no instance", with(func(*Observation) {}), KeepInstance, false, no, reason, v1alpha1.PhaseFailed, drift, false},
			{"coming up", with(observed(instanceIn(InstanceProvisioning))), KeepInstance, false, no, reason, v1alpha1.PhaseProvisioning, drift, false},
			{"healthy", with(func(o *Observation) { o.Instance, o.Probe = runningInstance(), healthy }), KeepInstance, true, yes, reason, v1alpha1.PhaseReady, drift, false},
			{"unhealthy", with(func(o *Observation) {
				o.Instance, o.Probe = runningInstance(), proxytest.Probe(proxytest.PodID, v1alpha1.VerdictUnhealthy)
			}), KeepInstance, true, yes, reason, v1alpha1.PhaseUnhealthy, drift, false},
			{"outdated, and it may be replaced", with(func(o *Observation) { edited(o); o.MayReplace = true }), KeepInstance, true, yes, reason, v1alpha1.PhaseReady, drift, false},
			{"ended", with(func(o *Observation) { o.Instance, o.Probe = instanceIn(InstanceEnded), healthy }), KeepInstance, true, no, reason, v1alpha1.PhaseFailed, drift, false},
			{"terminating", with(observed(gone(runningInstance()))), KeepInstance, false, no, reason, v1alpha1.PhaseFailed, drift, false},
			{"instance vanished, probe left", with(func(o *Observation) { o.Probe = healthy }), KeepInstance, true, no, reason, v1alpha1.PhaseFailed, drift, false},
		} {
			t.Run(reason+"/"+r.name, func(t *testing.T) {
				d := r.check(t)
				assert.True(t, d.KeepStrays)
				assert.Empty(t, d.SpecHash, "nothing is made")
			})
		}
	}
}

func TestDecideUnknownCarriesTheInstanceForward(t *testing.T) {
	for reason, trouble := range troubles() {
		t.Run(reason, func(t *testing.T) {
			o := observation(proxytest.Managed())
			o.Instance, o.Probe = runningInstance(), proxytest.Probe(proxytest.PodID, v1alpha1.VerdictHealthy)
			before, err := decide(o)
			require.NoError(t, err)

			o.Proxy.Status = before.Status
			o.Proxy.Spec.Port = 9999 // whatever the spec says now
			trouble(&o)
			after, err := decide(o)
			require.NoError(t, err)
			for name, get := range map[string]func(s v1alpha1.ProxyStatus) any{
				"phase":               func(s v1alpha1.ProxyStatus) any { return s.Phase },
				"ip":                  func(s v1alpha1.ProxyStatus) any { return s.IP },
				"port":                func(s v1alpha1.ProxyStatus) any { return s.Port },
				"providerID":          func(s v1alpha1.ProxyStatus) any { return s.ProviderID },
				"instanceID":          func(s v1alpha1.ProxyStatus) any { return s.InstanceID },
				"specHash":            func(s v1alpha1.ProxyStatus) any { return s.SpecHash },
				"latencyMillis":       func(s v1alpha1.ProxyStatus) any { return s.LatencyMillis },
				"exitIP":              func(s v1alpha1.ProxyStatus) any { return s.ExitIP },
				"lastHealthCheckTime": func(s v1alpha1.ProxyStatus) any { return s.LastHealthCheckTime },
				"Healthy": func(s v1alpha1.ProxyStatus) any {
					return meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionHealthy)
				},
			} {
				assert.Equal(t, get(before.Status), get(after.Status), name)
			}
			assert.Equal(t, before.Probe, after.Probe, "the prober is not disturbed")
		})
	}
}

func TestDecideUnknownKeepsTheHashOfAnAdoptedInstance(t *testing.T) {
	for reason, trouble := range troubles() {
		t.Run(reason, func(t *testing.T) {
			o := observation(proxytest.Managed())
			o.Instance = runningInstance()
			o.Instance.SpecHash = ""
			o.Proxy.Status.InstanceID, o.Proxy.Status.SpecHash = proxytest.PodID, proxytest.OtherHash
			trouble(&o)
			d, err := decide(o)
			require.NoError(t, err)
			assert.Equal(t, proxytest.OtherHash, d.Status.SpecHash)

			o.Proxy.Status.InstanceID = "another"
			d, err = decide(o)
			require.NoError(t, err)
			assert.Empty(t, d.Status.SpecHash, "that hash was about another instance")
		})
	}
}

func TestDecideUnknownProviderComesFirst(t *testing.T) {
	o := observation(proxytest.Managed())
	o.Provider, o.CloudInit.Problem = nil, "no Secret"
	d, err := decide(o)
	require.NoError(t, err)
	p := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionProvisioned)
	assert.Equal(t, v1alpha1.ReasonUnknownProvider, p.Reason)
	assert.Contains(t, p.Message, `"pods"`, "it names what is missing")
}

func TestDecideRecoversFromTrouble(t *testing.T) {
	for reason, trouble := range troubles() {
		t.Run(reason, func(t *testing.T) {
			o := observation(proxytest.Managed())
			o.Instance, o.Probe = runningInstance(), proxytest.Probe(proxytest.PodID, v1alpha1.VerdictHealthy)
			clean, err := decide(o)
			require.NoError(t, err)

			troubled := o
			trouble(&troubled)
			d, err := decide(troubled)
			require.NoError(t, err)

			o.Proxy = o.Proxy.DeepCopy()
			o.Proxy.Status = d.Status
			again, err := decide(o)
			require.NoError(t, err)
			assert.Equal(t, clean, again)
		})
	}
}

func TestDecideUnknownListsTheObservedProbeUnchanged(t *testing.T) {
	o := observation(proxytest.Managed())
	o.Provider = nil
	o.Probe = proxytest.Probe("old-instance", v1alpha1.VerdictHealthy)
	d, err := decide(o)
	require.NoError(t, err)
	assert.Equal(t, &o.Probe.Spec, d.Probe)

	now := metav1.NewTime(proxytest.Noon())
	o.Probe.DeletionTimestamp = &now
	d, err = decide(o)
	require.NoError(t, err)
	assert.Nil(t, d.Probe, "a probe on its way out is not made anew")
}
