package proxy

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

func TestVerdictAppliesToTheRunningInstanceOnly(t *testing.T) {
	unknown := metav1.ConditionUnknown
	for name, tt := range map[string]struct {
		probe    *v1alpha1.ProxyProbe
		status   metav1.ConditionStatus
		reason   string
		phase    v1alpha1.Phase
		believed bool
	}{
		"no probe":                     {nil, unknown, ReasonProbePending, v1alpha1.PhaseProbing, false},
		"no verdict":                   {proxytest.Probe(proxytest.PodID, ""), unknown, ReasonProbePending, v1alpha1.PhaseProbing, false},
		"healthy":                      {proxytest.Probe(proxytest.PodID, v1alpha1.VerdictHealthy), yes, "ProbeHealthy", v1alpha1.PhaseReady, true},
		"unhealthy":                    {proxytest.Probe(proxytest.PodID, v1alpha1.VerdictUnhealthy), no, "ProbeUnhealthy", v1alpha1.PhaseUnhealthy, true},
		"unknown":                      {proxytest.Probe(proxytest.PodID, v1alpha1.VerdictUnknown), unknown, "ProbeUnknown", v1alpha1.PhaseProbing, true},
		"healthy predecessor":          {proxytest.Probe("older", v1alpha1.VerdictHealthy), unknown, ReasonProbePending, v1alpha1.PhaseProbing, false},
		"spec ahead of status":         {specAhead(), unknown, ReasonProbePending, v1alpha1.PhaseProbing, false},
		"healthy without a reason":     {reasoned(v1alpha1.VerdictHealthy, ""), yes, "Healthy", v1alpha1.PhaseReady, true},
		"unhealthy, impossible reason": {reasoned(v1alpha1.VerdictUnhealthy, "no words, please!"), no, "Unhealthy", v1alpha1.PhaseUnhealthy, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := observation(proxytest.Managed())
			o.Instance, o.Probe = runningInstance(), tt.probe
			d, err := decide(o)
			require.NoError(t, err)
			h := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionHealthy)
			require.NotNil(t, h)
			assert.Equal(t, tt.status, h.Status)
			assert.Equal(t, tt.reason, h.Reason)
			assert.Equal(t, tt.phase, d.Status.Phase)
			assert.Equal(t, tt.believed, d.Status.LatencyMillis != nil)
			assert.Equal(t, tt.believed, d.Status.LastHealthCheckTime != nil)
			assert.Equal(t, tt.believed, d.Status.ExitIP != "")
		})
	}
}

// specAhead is a probe of the running instance whose status is still about the
// one before.
func specAhead() *v1alpha1.ProxyProbe {
	p := proxytest.Probe(proxytest.PodID, v1alpha1.VerdictHealthy)
	p.Status.InstanceID = "older"
	return p
}

func reasoned(v v1alpha1.Verdict, reason string) *v1alpha1.ProxyProbe {
	p := proxytest.Probe(proxytest.PodID, v)
	p.Status.Reason = reason
	return p
}

// What `kubectl get px` shows under REASON.
func TestStatusReason(t *testing.T) {
	created, external := condition{status: yes, reason: v1alpha1.ReasonCreated}, condition{status: yes, reason: v1alpha1.ReasonExternalEndpoint}
	healthy := condition{status: yes, reason: "ProbeSucceeded"}
	for name, tt := range map[string]struct {
		provisioned, healthy condition
		want                 string
	}{
		"all is well":              {created, healthy, ""},
		"all is well, External":    {external, healthy, ""},
		"no instance":              {condition{status: no, reason: v1alpha1.ReasonStockout}, condition{status: metav1.ConditionUnknown, reason: ReasonNoInstance}, v1alpha1.ReasonStockout},
		"unhealthy":                {created, condition{status: no, reason: "DialFailed"}, "DialFailed"},
		"no verdict":               {external, condition{status: metav1.ConditionUnknown, reason: ReasonProbePending}, ReasonProbePending},
		"works, wanted unknown":    {condition{status: yes, reason: v1alpha1.ReasonCloudInitError}, healthy, v1alpha1.ReasonCloudInitError},
		"unhealthy before unknown": {condition{status: yes, reason: v1alpha1.ReasonCloudInitError}, condition{status: no, reason: "DialFailed"}, "DialFailed"},
		"works, verdict is held":   {created, condition{status: yes, reason: v1alpha1.ReasonProbeTargetDown}, v1alpha1.ReasonProbeTargetDown},
		"other words for healthy":  {created, condition{status: yes, reason: "Healthy"}, ""},
	} {
		assert.Equal(t, tt.want, statusReason(tt.provisioned, tt.healthy), name)
	}
}

// The proxy stays Ready, and everybody sees that its verdict is the one from before.
func TestSuppressedVerdictShowsInTheStatus(t *testing.T) {
	o := observation(proxytest.Managed())
	o.Instance, o.Probe = runningInstance(), reasoned(v1alpha1.VerdictHealthy, v1alpha1.ReasonProbeTargetDown)
	d, err := decide(o)
	require.NoError(t, err)
	assert.Equal(t, v1alpha1.PhaseReady, d.Status.Phase)
	assert.Equal(t, v1alpha1.ReasonProbeTargetDown, d.Status.Reason)
	assert.Equal(t, "what the prober saw", meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionHealthy).Message)
}

func TestExitIPIsClearedWithItsInstance(t *testing.T) {
	o := observation(proxytest.Managed())
	o.Instance, o.Probe = runningInstance(), proxytest.Probe(proxytest.PodID, v1alpha1.VerdictHealthy)
	exit := func() string {
		d, err := decide(o)
		require.NoError(t, err)
		o.Proxy.Status = d.Status
		return d.Status.ExitIP
	}
	assert.Equal(t, "198.51.100.7", exit())
	o.Instance = gone(o.Instance)
	assert.Empty(t, exit(), "the instance goes")
	o.Instance = runningInstance()
	o.Instance.ID = "pod-uid-2"
	assert.Empty(t, exit(), "the verdict is about its predecessor")
	o.Probe = proxytest.Probe("pod-uid-2", v1alpha1.VerdictHealthy)
	assert.Equal(t, "198.51.100.7", exit())
}

func TestConditionsKeepTheirTimeUntilTheirStatusChanges(t *testing.T) {
	o := observation(proxytest.Managed())
	o.Instance = runningInstance()
	times := func() (provisioned, healthy time.Time) {
		d, err := decide(o)
		require.NoError(t, err)
		o.Proxy.Status = d.Status
		require.Len(t, d.Status.Conditions, 2)
		return d.Status.Conditions[0].LastTransitionTime.UTC(), d.Status.Conditions[1].LastTransitionTime.UTC()
	}
	p, h := times()
	assert.Equal(t, []time.Time{proxytest.Noon(), proxytest.Noon()}, []time.Time{p, h})

	o.Now = proxytest.Noon().Add(time.Minute)
	o.Probe = proxytest.Probe(proxytest.PodID, v1alpha1.VerdictHealthy)
	p, h = times()
	assert.Equal(t, []time.Time{proxytest.Noon(), proxytest.Noon().Add(time.Minute)}, []time.Time{p, h}, "only Healthy changed")

	o.Now = proxytest.Noon().Add(time.Hour)
	p, h = times()
	assert.Equal(t, []time.Time{proxytest.Noon(), proxytest.Noon().Add(time.Minute)}, []time.Time{p, h}, "nothing changed")
}

// Metacontroller writes a status that differs and then reconciles again: a time of
// a condition that differs at every call would be reconciled for ever.
func TestConditionTimesAreStoredTimes(t *testing.T) {
	at := proxytest.Noon().Add(678 * time.Nanosecond).In(time.FixedZone("elsewhere", 5*60*60))
	o := observation(proxytest.Managed())
	o.Instance, o.Now = runningInstance(), at
	o.Probe = proxytest.Probe(proxytest.PodID, v1alpha1.VerdictHealthy)
	o.Proxy.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProvisioned, Status: yes}}
	d, err := decide(o)
	require.NoError(t, err)
	for _, c := range d.Status.Conditions {
		assert.Equal(t, metav1.NewTime(proxytest.Noon()), c.LastTransitionTime, "%s: UTC in whole seconds, also where the old condition had no time", c.Type)
	}
	stored, err := json.Marshal(d.Status)
	require.NoError(t, err)
	o.Proxy.Status = v1alpha1.ProxyStatus{}
	require.NoError(t, json.Unmarshal(stored, &o.Proxy.Status))
	for _, now := range []time.Time{at.Add(-time.Hour), at.Add(time.Second), at.UTC().Add(123 * time.Nanosecond)} {
		o.Now = now
		d, err := decide(o)
		require.NoError(t, err)
		again, err := json.Marshal(d.Status)
		require.NoError(t, err)
		assert.Equal(t, string(stored), string(again), now.String())
	}
}

func TestConditionsOfOthersAreDropped(t *testing.T) {
	o := observation(proxytest.Managed())
	proxytest.SetCondition(o.Proxy, "Ready", yes, "Whatever", proxytest.Noon())
	d, err := decide(o)
	require.NoError(t, err)
	assert.Nil(t, meta.FindStatusCondition(d.Status.Conditions, "Ready"), "status has one writer")
	assert.Len(t, o.Proxy.Status.Conditions, 1, "the input is not touched")
}

// The mark in the Healthy condition lives from the beginning of a voluntary
// replacement to the first verdict on the new instance, whatever happens
// between.
func TestReplacementMark(t *testing.T) {
	o := observation(proxytest.Managed())
	edited(&o)
	o.MayReplace = true
	step := func(name string, marked bool) {
		t.Helper()
		d, err := decide(o)
		require.NoError(t, err)
		o.Proxy.Status = d.Status
		assert.Equal(t, marked, (&Observation{Proxy: &v1alpha1.Proxy{Status: d.Status}}).ReplacementUnderWay(), name)
	}
	step("the old one is let go", true)
	o.Instance.Terminating = true
	step("the old one terminates", true)
	o.Instance, o.Probe = Absent(), nil
	step("the old one is gone", true)
	o.Instance = instanceIn(InstanceProvisioning)
	o.Instance.ID, o.Instance.SpecHash = "pod-uid-2", proxytest.Hash(o.Proxy)
	step("the new one comes up", true)
	o.Provider = nil
	step("the provider is gone for a while", true)
	o.Provider = &Provider{}
	o.Instance.State, o.Instance.IP = InstanceRunning, "10.1.2.4"
	step("the new one runs", true)
	o.Probe = proxytest.Probe("pod-uid-2", v1alpha1.VerdictUnknown)
	step("too few probes so far", true)
	o.Probe = proxytest.Probe("pod-uid-2", v1alpha1.VerdictHealthy)
	step("the new one is healthy", false)

	o.Instance = gone(o.Instance)
	step("the Pod is deleted by hand", false)
}

func TestReplacementMarkEndsWithTheProxy(t *testing.T) {
	o := observation(proxytest.Managed())
	edited(&o)
	proxytest.SetCondition(o.Proxy, v1alpha1.ConditionHealthy, metav1.ConditionUnknown, v1alpha1.ReasonReplacing, proxytest.Noon())
	o.Finalizing = true
	d, err := decide(o)
	require.NoError(t, err)
	assert.False(t, (&Observation{Proxy: &v1alpha1.Proxy{Status: d.Status}}).ReplacementUnderWay())
}

func TestPortOfAnInstanceWithoutOne(t *testing.T) {
	o := observation(proxytest.Managed())
	in := runningInstance()
	in.Port = 0
	assert.Equal(t, int32(3128), o.portOf(in), "the spec's")
	o.Proxy.Status.InstanceID, o.Proxy.Status.Port = in.ID, 8888
	assert.Equal(t, int32(8888), o.portOf(in), "the one reported for this instance")
	o.Proxy.Status.InstanceID = "another"
	assert.Equal(t, int32(3128), o.portOf(in), "that was another instance's")
	in.Port = 3333
	assert.Equal(t, int32(3333), o.portOf(in), "its own")
}

// Metacontroller swallows AlreadyExists: when another owner's object has the name,
// the ProxyProbe never appears.
func TestMissingProbeTimesOut(t *testing.T) {
	deadline := testTiming().ProvisioningDeadline
	modes := map[string]func() Observation{
		"Managed": func() Observation {
			o := observation(proxytest.Managed())
			o.Instance = runningInstance()
			return o
		},
		"External": func() Observation { return observation(proxytest.External()) },
	}
	for mode, fresh := range modes {
		t.Run(mode, func(t *testing.T) {
			o := fresh()
			poll := testTiming().ProvisioningPoll
			health := func(after time.Duration) *metav1.Condition {
				o.Now = proxytest.Noon().Add(after)
				d, err := decide(o)
				require.NoError(t, err)
				o.Proxy.Status = d.Status
				assert.Equal(t, v1alpha1.PhaseProbing, d.Status.Phase)
				assert.NotNil(t, d.Probe, "it is still wanted")
				assert.Equal(t, poll, d.ResyncAfter, "and may come")
				return meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionHealthy)
			}
			require.Equal(t, ReasonProbePending, health(0).Reason)
			require.Equal(t, ReasonProbePending, health(deadline).Reason)
			poll = testTiming().DriftPoll
			missing := health(deadline + time.Second)
			require.Equal(t, ReasonProbeMissing, missing.Reason)
			assert.Contains(t, missing.Message, "kubectl get proxyprobe -n "+o.Proxy.Namespace+" "+o.Proxy.Name)
			require.Equal(t, missing, health(time.Hour), "said once")

			o.InBudget = true
			replaced := health(time.Hour)
			assert.Equal(t, v1alpha1.ReasonReplacing, replaced.Reason, "the budget is kept by this word")
			assert.Equal(t, missing.Message, replaced.Message)
		})
	}
}
