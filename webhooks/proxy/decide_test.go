package proxy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

// row is one row of the decision table.
type row struct {
	name string
	// change turns an observation of a fresh Managed Proxy into the row's.
	change func(o *Observation)

	instance InstanceAction
	probe    bool
	status   metav1.ConditionStatus // of Provisioned
	reason   string
	phase    v1alpha1.Phase
	resync   time.Duration
	final    bool
}

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
)

func (r row) check(t *testing.T) Decision {
	t.Helper()
	o := observation(proxytest.Managed())
	r.change(&o)
	d, err := decide(o)
	require.NoError(t, err)
	p := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionProvisioned)
	require.NotNil(t, p)
	assert.Equal(t, r.instance, d.Instance, "instance")
	assert.Equal(t, r.probe, d.Probe != nil, "probe listed")
	assert.Equal(t, r.status, p.Status, "Provisioned")
	assert.Equal(t, r.reason, p.Reason, "Provisioned")
	assert.Equal(t, r.phase, d.Status.Phase)
	assert.Equal(t, r.resync, d.ResyncAfter)
	assert.Equal(t, r.final, d.Finalized)
	assert.Equal(t, o.Proxy.Generation, d.Status.ObservedGeneration)
	assert.Equal(t, o.Proxy.Generation, p.ObservedGeneration)
	return d
}

func observed(in Instance) func(o *Observation) { return func(o *Observation) { o.Instance = in } }

// edited is the running instance after an edit of spec.port.
func edited(o *Observation) {
	o.Instance = runningInstance()
	o.Proxy.Spec.Port = 3129
	o.Probe = proxytest.Probe(proxytest.PodID, v1alpha1.VerdictHealthy)
}

func instanceIn(state InstanceState) Instance {
	in := runningInstance()
	in.State = state
	if state == InstanceProvisioning {
		in.IP = ""
	}
	return in
}

// servedBefore is the running instance, as the status has it.
func servedBefore(o *Observation) {
	o.Instance = runningInstance()
	o.Proxy.Status.InstanceID = o.Instance.ID
	proxytest.SetCondition(o.Proxy, v1alpha1.ConditionProvisioned, yes, v1alpha1.ReasonCreated, proxytest.Noon().Add(-time.Minute))
}

func gone(in Instance) Instance {
	in.Terminating = true
	return in
}

func TestDecideManaged(t *testing.T) {
	tm := testTiming()
	for _, r := range []row{
		{"absent", func(*Observation) {},
			MakeInstance, false, no, v1alpha1.ReasonProvisioning, v1alpha1.PhaseProvisioning, tm.ProvisioningPoll, false},
		{"coming up", observed(instanceIn(InstanceProvisioning)),
			MakeInstance, false, no, v1alpha1.ReasonProvisioning, v1alpha1.PhaseProvisioning, tm.ProvisioningPoll, false},
		{"runs, never probed", observed(runningInstance()),
			MakeInstance, true, yes, v1alpha1.ReasonCreated, v1alpha1.PhaseProbing, tm.ProvisioningPoll, false},
		{"runs, healthy", func(o *Observation) {
			o.Instance, o.Probe = runningInstance(), proxytest.Probe(proxytest.PodID, v1alpha1.VerdictHealthy)
		}, MakeInstance, true, yes, v1alpha1.ReasonCreated, v1alpha1.PhaseReady, tm.DriftPoll, false},
		{"runs, unhealthy", func(o *Observation) {
			o.Instance, o.Probe = runningInstance(), proxytest.Probe(proxytest.PodID, v1alpha1.VerdictUnhealthy)
		}, MakeInstance, true, yes, v1alpha1.ReasonCreated, v1alpha1.PhaseUnhealthy, tm.DriftPoll, false},
		{"outdated, replacement allowed", func(o *Observation) { edited(o); o.MayReplace = true },
			RemoveInstance, false, no, v1alpha1.ReasonReplacing, v1alpha1.PhaseReplacing, tm.RemovalPoll, false},
		{"outdated, budget used up", edited,
			KeepInstance, true, yes, v1alpha1.ReasonReplacementPending, v1alpha1.PhaseReady, tm.BudgetPoll, false},
		{"outdated before it ran: replaced without the budget", func(o *Observation) { edited(o); o.Instance = instanceIn(InstanceProvisioning) },
			RemoveInstance, false, no, v1alpha1.ReasonReplacing, v1alpha1.PhaseReplacing, tm.RemovalPoll, false},
		{"terminating after it ran", func(o *Observation) {
			o.Instance = gone(runningInstance())
			proxytest.SetCondition(o.Proxy, v1alpha1.ConditionProvisioned, yes, v1alpha1.ReasonCreated, proxytest.Noon())
		}, RemoveInstance, false, no, v1alpha1.ReasonReplacing, v1alpha1.PhaseReplacing, tm.RemovalPoll, false},
		{"terminating before it ran", func(o *Observation) {
			o.Instance = gone(instanceIn(InstanceProvisioning))
			proxytest.SetCondition(o.Proxy, v1alpha1.ConditionProvisioned, no, v1alpha1.ReasonProvisioning, proxytest.Noon())
		}, RemoveInstance, false, no, v1alpha1.ReasonProvisioning, v1alpha1.PhaseProvisioning, tm.RemovalPoll, false},
		{"terminating and outdated", func(o *Observation) {
			edited(o)
			o.Instance.Terminating = true
			proxytest.SetCondition(o.Proxy, v1alpha1.ConditionProvisioned, no, v1alpha1.ReasonReplacing, proxytest.Noon())
		}, RemoveInstance, false, no, v1alpha1.ReasonReplacing, v1alpha1.PhaseReplacing, tm.RemovalPoll, false},
		{"ended after it served", func(o *Observation) { servedBefore(o); o.Instance.State = InstanceEnded },
			RemoveInstance, false, no, v1alpha1.ReasonInstanceTerminated, v1alpha1.PhaseReplacing, tm.RemovalPoll, false},
		{"ended soon after it served", func(o *Observation) {
			servedBefore(o)
			o.Instance.State, o.Instance.CreatedAt = InstanceEnded, proxytest.Noon().Add(-20*time.Second)
		}, KeepInstance, false, no, v1alpha1.ReasonInstanceTerminated, v1alpha1.PhaseReplacing, 40 * time.Second, false},
		{"ended before it served", observed(instanceIn(InstanceEnded)),
			RemoveInstance, false, no, v1alpha1.ReasonInstanceFailing, v1alpha1.PhaseFailed, tm.RemovalPoll, false},
		{"terminating after it ended before it served", func(o *Observation) {
			o.Instance = gone(instanceIn(InstanceEnded))
			proxytest.SetCondition(o.Proxy, v1alpha1.ConditionProvisioned, no, v1alpha1.ReasonInstanceFailing, proxytest.Noon())
		}, RemoveInstance, false, no, v1alpha1.ReasonInstanceFailing, v1alpha1.PhaseFailed, tm.RemovalPoll, false},
		{"gone after it ended before it served", func(o *Observation) {
			proxytest.SetCondition(o.Proxy, v1alpha1.ConditionProvisioned, no, v1alpha1.ReasonInstanceFailing, proxytest.Noon())
		}, MakeInstance, false, no, v1alpha1.ReasonInstanceFailing, v1alpha1.PhaseFailed, tm.DriftPoll, false},
		{"the next one is pending", func(o *Observation) {
			o.Instance = instanceIn(InstanceProvisioning)
			proxytest.SetCondition(o.Proxy, v1alpha1.ConditionProvisioned, no, v1alpha1.ReasonInstanceFailing, proxytest.Noon())
		}, MakeInstance, false, no, v1alpha1.ReasonProvisioning, v1alpha1.PhaseProvisioning, tm.ProvisioningPoll, false},
		{"ended and outdated", func(o *Observation) { edited(o); o.Instance.State = InstanceEnded },
			RemoveInstance, false, no, v1alpha1.ReasonInstanceTerminated, v1alpha1.PhaseReplacing, tm.RemovalPoll, false},
	} {
		t.Run(r.name, func(t *testing.T) { r.check(t) })
	}
}

func TestDecideFinalizing(t *testing.T) {
	tm := testTiming()
	deleting := func(change func(o *Observation)) func(o *Observation) {
		return func(o *Observation) { change(o); o.Finalizing = true }
	}
	waiting := func(name string, change func(o *Observation)) row {
		return row{name, deleting(change), RemoveInstance, false, no, v1alpha1.ReasonDeleting, v1alpha1.PhaseDeleting, tm.RemovalPoll, false}
	}
	done := func(name string, change func(o *Observation)) row {
		return row{name, deleting(change), RemoveInstance, false, no, v1alpha1.ReasonDeleting, v1alpha1.PhaseDeleting, 0, true}
	}
	for _, r := range []row{
		waiting("instance runs", observed(runningInstance())),
		waiting("instance coming up", observed(instanceIn(InstanceProvisioning))),
		waiting("instance terminating", observed(gone(runningInstance()))),
		waiting("instance ended", observed(instanceIn(InstanceEnded))),
		waiting("instance outdated, without budget", edited),
		waiting("provider unknown", func(o *Observation) { o.Instance, o.Provider = runningInstance(), nil }),
		waiting("cloud-init unknown", func(o *Observation) { o.Instance, o.CloudInit.Problem = runningInstance(), "no Secret" }),
		waiting("abandon annotation does not free a Pod", func(o *Observation) {
			o.Instance = runningInstance()
			o.Proxy.Annotations = map[string]string{v1alpha1.AnnotationAbandon: v1alpha1.ValueTrue}
		}),
		waiting("probe left", func(o *Observation) { o.Probe = proxytest.Probe(proxytest.PodID, v1alpha1.VerdictHealthy) }),
		waiting("stray left", func(o *Observation) {
			o.Strays = []Stray{{Object: &unstructured.Unstructured{}}}
		}),
		done("nothing left", func(*Observation) {}),
		done("nothing left, provider unknown", func(o *Observation) { o.Provider = nil }),
		waiting("External, probe left", func(o *Observation) {
			o.Proxy, o.Probe = proxytest.External(), proxytest.Probe("any", v1alpha1.VerdictHealthy)
		}),
		done("External, probe gone", func(o *Observation) { o.Proxy = proxytest.External() }),
	} {
		t.Run(r.name, func(t *testing.T) {
			d := r.check(t)
			assert.Empty(t, d.Status.IP, "a deleted proxy has no address")
			assert.Zero(t, d.Status.Port)
		})
	}
}

func TestDecideExternal(t *testing.T) {
	id := v1alpha1.ExternalInstanceID(v1alpha1.Endpoint{Host: "proxy.vendor.example", Port: 8080})
	with := func(probe *v1alpha1.ProxyProbe) func(o *Observation) {
		return func(o *Observation) { o.Proxy, o.Provider, o.Probe = proxytest.External(), nil, probe }
	}
	tm := testTiming()
	for _, r := range []row{
		{"no probe yet", with(nil), RemoveInstance, true, yes, v1alpha1.ReasonExternalEndpoint, v1alpha1.PhaseProbing, tm.ProvisioningPoll, false},
		{"no verdict yet", with(proxytest.Probe(id, "")), RemoveInstance, true, yes, v1alpha1.ReasonExternalEndpoint, v1alpha1.PhaseProbing, tm.DriftPoll, false},
		{"verdict on another endpoint", with(proxytest.Probe("external-old", v1alpha1.VerdictHealthy)), RemoveInstance, true, yes, v1alpha1.ReasonExternalEndpoint, v1alpha1.PhaseProbing, tm.DriftPoll, false},
		{"healthy", with(proxytest.Probe(id, v1alpha1.VerdictHealthy)), RemoveInstance, true, yes, v1alpha1.ReasonExternalEndpoint, v1alpha1.PhaseReady, 0, false},
		{"unhealthy", with(proxytest.Probe(id, v1alpha1.VerdictUnhealthy)), RemoveInstance, true, yes, v1alpha1.ReasonExternalEndpoint, v1alpha1.PhaseUnhealthy, 0, false},
	} {
		t.Run(r.name, func(t *testing.T) {
			d := r.check(t)
			assert.Equal(t, "proxy.vendor.example", d.Status.IP)
			assert.Equal(t, int32(8080), d.Status.Port)
			assert.Equal(t, id, d.Status.InstanceID)
			assert.Equal(t, id, d.Probe.InstanceID)
			assert.Equal(t, "proxy.vendor.example", d.Probe.Host)
			assert.Equal(t, int32(8080), d.Probe.Port)
			assert.Empty(t, d.Status.SpecHash, "nothing was made")
		})
	}
}

func TestDecideRefusesWhatItDoesNotKnow(t *testing.T) {
	o := observation(proxytest.Managed())
	o.Proxy.Spec.Mode = "Rented"
	_, err := decide(o)
	require.ErrorContains(t, err, `spec.mode is "Rented"`)

	o = observation(proxytest.External())
	o.Proxy.Spec.Endpoint = nil
	_, err = decide(o)
	require.ErrorContains(t, err, "spec.endpoint is missing")
}

// Every field of a health check reaches the prober.
func TestProbeOfAnEndpointThatSpeaksTLS(t *testing.T) {
	o := observation(proxytest.External())
	o.Proxy.Spec.HealthCheck.ProbeURLs = []v1alpha1.ProbeURL{"https://a.example/", "https://b.example/"}
	o.Proxy.Spec.HealthCheck.ExitProof = &v1alpha1.ExitProof{}
	o.Proxy.Spec.HealthCheck.OpenProxyTest = true
	for scheme, want := range map[v1alpha1.Scheme]v1alpha1.Scheme{"": "", v1alpha1.SchemeHTTP: "", v1alpha1.SchemeHTTPS: v1alpha1.SchemeHTTPS} {
		o.Proxy.Spec.Endpoint.Scheme = scheme
		spec := external(&o).Probe
		assert.Equal(t, want, spec.Scheme)
		assert.Equal(t, o.Proxy.Spec.HealthCheck.ProbeURLs, spec.HealthCheck.ProbeURLs)
		assert.Equal(t, v1alpha1.ReportHeaderLeak, spec.HealthCheck.ExitProof.OnHeaderLeak)
		assert.True(t, spec.HealthCheck.OpenProxyTest)
	}
}

// blockReasons are the ways in which the wanted state can be unknown.
func blockReasons() map[string]func(o *Observation) {
	return map[string]func(o *Observation){
		v1alpha1.ReasonUnknownProvider: func(o *Observation) { o.Provider = nil },
		v1alpha1.ReasonCloudInitError:  func(o *Observation) { o.CloudInit = CloudInit{Problem: "secret crawl/x was not found"} },
	}
}

func TestDecideUnknownNeverMeansDelete(t *testing.T) {
	drift := testTiming().DriftPoll
	for reason, block := range blockReasons() {
		with := func(change func(o *Observation)) func(o *Observation) {
			return func(o *Observation) { change(o); block(o) }
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
	for reason, block := range blockReasons() {
		t.Run(reason, func(t *testing.T) {
			o := observation(proxytest.Managed())
			o.Instance, o.Probe = runningInstance(), proxytest.Probe(proxytest.PodID, v1alpha1.VerdictHealthy)
			before, err := decide(o)
			require.NoError(t, err)

			o.Proxy.Status = before.Status
			o.Proxy.Spec.Port = 9999 // the spec no longer matters
			block(&o)
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
	for reason, block := range blockReasons() {
		t.Run(reason, func(t *testing.T) {
			o := observation(proxytest.Managed())
			o.Instance = runningInstance()
			o.Instance.SpecHash = ""
			o.Proxy.Status.InstanceID, o.Proxy.Status.SpecHash = proxytest.PodID, proxytest.OtherHash
			block(&o)
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

func TestDecideRecoversFromABlockReason(t *testing.T) {
	for reason, block := range blockReasons() {
		t.Run(reason, func(t *testing.T) {
			o := observation(proxytest.Managed())
			o.Instance, o.Probe = runningInstance(), proxytest.Probe(proxytest.PodID, v1alpha1.VerdictHealthy)
			clean, err := decide(o)
			require.NoError(t, err)

			blocked := o
			block(&blocked)
			d, err := decide(blocked)
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
