package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

func provisioned(t *testing.T, o Observation) *metav1.Condition {
	t.Helper()
	d, err := decide(o)
	require.NoError(t, err)
	c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionProvisioned)
	require.NotNil(t, c)
	return c
}

func TestProvisioningTimeout(t *testing.T) {
	start := proxytest.Noon().Add(-time.Hour)
	deadline := start.Add(testTiming().ProvisioningDeadline)
	pending := func(waiting string) func(o *Observation) {
		return func(o *Observation) {
			o.Instance = instanceIn(InstanceProvisioning)
			o.Instance.CreatedAt, o.Instance.Waiting = start, waiting
		}
	}
	asked := func(reason string) func(o *Observation) {
		return func(o *Observation) {
			proxytest.SetCondition(o.Proxy, v1alpha1.ConditionProvisioned, no, reason, start)
		}
	}
	for name, tt := range map[string]struct {
		change  func(o *Observation)
		now     time.Time
		reason  string
		message string
	}{
		"Pod within the deadline":             {pending(""), deadline, v1alpha1.ReasonProvisioning, "waiting for the instance to run"},
		"Pod within the deadline, waiting":    {pending("ErrImagePull"), deadline, v1alpha1.ReasonProvisioning, "ErrImagePull"},
		"Pod past the deadline":               {pending(""), deadline.Add(time.Second), v1alpha1.ReasonProvisioningTimeout, "does not run 10m0s after its creation"},
		"Pod past the deadline, waiting":      {pending("ImagePullBackOff"), deadline.Add(time.Second), v1alpha1.ReasonProvisioningTimeout, "ImagePullBackOff"},
		"no Pod, just requested":              {func(*Observation) {}, deadline.Add(time.Hour), v1alpha1.ReasonProvisioning, "being created"},
		"no Pod within the deadline":          {asked(v1alpha1.ReasonProvisioning), deadline, v1alpha1.ReasonProvisioning, "being created"},
		"no Pod past the deadline":            {asked(v1alpha1.ReasonProvisioning), deadline.Add(time.Second), v1alpha1.ReasonProvisioningTimeout, "the Pod could not be created"},
		"no Pod long past the deadline":       {asked(v1alpha1.ReasonProvisioningTimeout), deadline.Add(time.Hour), v1alpha1.ReasonProvisioningTimeout, "the Pod could not be created"},
		"old Pod took long to go":             {asked(v1alpha1.ReasonReplacing), deadline.Add(time.Hour), v1alpha1.ReasonProvisioning, "being created"},
		"trouble lasted longer than deadline": {asked(v1alpha1.ReasonCloudInitError), deadline.Add(time.Hour), v1alpha1.ReasonProvisioning, "being created"},
	} {
		t.Run(name, func(t *testing.T) {
			o := observation(proxytest.Managed())
			tt.change(&o)
			o.Now = tt.now
			c := provisioned(t, o)
			assert.Equal(t, tt.reason, c.Reason)
			assert.Contains(t, c.Message, tt.message)
		})
	}
}

func TestProvisioningTimeoutStillWantsThePod(t *testing.T) {
	o := observation(proxytest.Managed())
	o.Instance = instanceIn(InstanceProvisioning)
	o.Instance.CreatedAt = proxytest.Noon().Add(-time.Hour)
	d, err := decide(o)
	require.NoError(t, err)
	assert.Equal(t, MakeInstance, d.Instance)
	assert.Equal(t, v1alpha1.PhaseFailed, d.Status.Phase)
	assert.Equal(t, testTiming().DriftPoll, d.ResyncAfter)

	o.Proxy.Status, o.Instance = d.Status, runningInstance()
	d, err = decide(o)
	require.NoError(t, err)
	assert.Equal(t, v1alpha1.PhaseProbing, d.Status.Phase, "late is better than never")
}

func TestAdoption(t *testing.T) {
	want := proxytest.Hash(proxytest.Managed())
	for name, tt := range map[string]struct {
		podHash, statusHash, statusID string
		replaced                      bool
		hash                          string // in status afterwards
	}{
		"own hash, right":                          {podHash: want, hash: want},
		"own hash, wrong":                          {podHash: proxytest.OtherHash, replaced: true, hash: proxytest.OtherHash},
		"own hash wins over the status":            {podHash: want, statusHash: proxytest.OtherHash, statusID: proxytest.PodID, hash: want},
		"no hash, first seen":                      {hash: want},
		"no hash, adopted with the wanted one":     {statusHash: want, statusID: proxytest.PodID, hash: want},
		"no hash, adopted before an edit":          {statusHash: proxytest.OtherHash, statusID: proxytest.PodID, replaced: true, hash: proxytest.OtherHash},
		"no hash, status is about another":         {statusHash: proxytest.OtherHash, statusID: "another", hash: want},
		"hash of another release, first seen":      {podHash: "v9-x", hash: want},
		"hash of a person":                         {podHash: "v1-mine", hash: want},
		"hash of another release, adopted, edited": {podHash: "v9-x", statusHash: proxytest.OtherHash, statusID: proxytest.PodID, replaced: true, hash: proxytest.OtherHash},
		"status of another release":                {statusHash: "v9-x", statusID: proxytest.PodID, hash: want},
	} {
		t.Run(name, func(t *testing.T) {
			o := observation(proxytest.Managed())
			o.Instance = runningInstance()
			o.Instance.SpecHash = tt.podHash
			o.Proxy.Status.SpecHash, o.Proxy.Status.InstanceID = tt.statusHash, tt.statusID
			o.MayReplace = true
			assert.Equal(t, tt.replaced, asksBudget(o))
			d, err := decide(o)
			require.NoError(t, err)
			assert.Equal(t, tt.replaced, d.Instance == RemoveInstance)
			assert.Equal(t, tt.hash, d.Status.SpecHash)
			assert.Equal(t, proxytest.PodID, d.Status.InstanceID)
		})
	}
}

// An adopted instance whose delete failed must not be adopted a second time,
// with the new hash: it would never be replaced.
func TestAdoptedInstanceSurvivesAFailedDelete(t *testing.T) {
	o := observation(proxytest.Managed())
	o.Instance = runningInstance()
	o.Instance.SpecHash = ""
	d, err := decide(o)
	require.NoError(t, err)
	require.Equal(t, proxytest.Hash(o.Proxy), d.Status.SpecHash)

	o.Proxy.Spec.Port, o.MayReplace = 3129, true
	for range 3 {
		o.Proxy.Status = d.Status
		d, err = decide(o)
		require.NoError(t, err)
		require.Equal(t, RemoveInstance, d.Instance)
	}
}

func TestReplacementPendingReportsTheRunningInstance(t *testing.T) {
	o := observation(proxytest.Managed())
	edited(&o)
	d, err := decide(o)
	require.NoError(t, err)
	assert.Equal(t, int32(3128), d.Status.Port, "the running instance's, not the spec's")
	assert.Equal(t, int32(3128), d.Probe.Port)
	assert.Equal(t, proxytest.Hash(proxytest.Managed()), d.Status.SpecHash)
	assert.Contains(t, provisioned(t, o).Message, "--max-replacing")
}

func TestReplacingHasNoAddress(t *testing.T) {
	o := observation(proxytest.Managed())
	edited(&o)
	o.MayReplace = true
	d, err := decide(o)
	require.NoError(t, err)
	assert.Empty(t, d.Status.IP)
	assert.Zero(t, d.Status.Port)
	assert.Nil(t, d.Status.LatencyMillis)
	assert.Nil(t, d.Status.LastHealthCheckTime)
	assert.Equal(t, proxytest.PodID, d.Status.InstanceID, "it is still there")
}

func TestCredentialsNoteOnPods(t *testing.T) {
	o := observation(proxytest.Managed())
	o.Instance = runningInstance()
	o.Proxy.Spec.CredentialsRef = &v1alpha1.CredentialsRef{Name: "login"}
	c := provisioned(t, o)
	assert.Contains(t, c.Message, "Pods do not check the credentials of credentialsRef yet")
	assert.Contains(t, c.Message, "NetworkPolicy")

	d, err := decide(o)
	require.NoError(t, err)
	require.NotNil(t, d.Probe.CredentialsRef)
	assert.Equal(t, "login", d.Probe.CredentialsRef.Name)
}

func TestAsksBudgetOnlyForServingInstances(t *testing.T) {
	base := func() Observation {
		o := observation(proxytest.Managed())
		edited(&o)
		return o
	}
	for name, tt := range map[string]struct {
		change func(o *Observation)
		want   bool
	}{
		"serving and outdated": {func(*Observation) {}, true},
		"up to date":           {func(o *Observation) { o.Proxy.Spec.Port = 3128 }, false},
		"coming up":            {func(o *Observation) { o.Instance = instanceIn(InstanceProvisioning) }, false},
		"ended":                {func(o *Observation) { o.Instance = instanceIn(InstanceEnded) }, false},
		"terminating":          {func(o *Observation) { o.Instance.Terminating = true }, false},
		"absent":               {func(o *Observation) { o.Instance = Absent() }, false},
		"finalizing":           {func(o *Observation) { o.Finalizing = true }, false},
		"unknown provider":     {func(o *Observation) { o.Provider = nil }, false},
		"unknown cloud-init":   {func(o *Observation) { o.CloudInit.Problem = "x" }, false},
		"External":             {func(o *Observation) { o.Proxy = proxytest.External() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := base()
			tt.change(&o)
			assert.Equal(t, tt.want, asksBudget(o))
		})
	}
}

// failingPod plays a kubelet that refuses each Pod at once, and Metacontroller, from the
// first answer on. It returns the times between creations.
func failingPod(t *testing.T, during time.Duration, each func(d *Decision)) []time.Duration {
	t.Helper()
	o := observation(proxytest.Managed())
	var made []time.Time
	for end := o.Now.Add(during); o.Now.Before(end); {
		d, err := decide(o)
		require.NoError(t, err)
		each(&d)
		o.Proxy.Status = d.Status
		switch {
		case d.Instance == MakeInstance && !o.Instance.Exists():
			made = append(made, o.Now)
			o.Instance = Instance{
				State: InstanceEnded, Ended: "OutOfcpu", ProviderID: "crawl/proxy-x", ID: fmt.Sprintf("pod-%d", len(made)),
				SpecHash: d.SpecHash, CreatedAt: o.Now,
			}
		case d.Instance == RemoveInstance:
			o.Instance = Absent()
		default:
			require.Positive(t, d.ResyncAfter)
			o.Now = o.Now.Add(d.ResyncAfter)
		}
		o.Now = o.Now.Add(100 * time.Millisecond) // until the next event
	}
	var gaps []time.Duration
	for i := range len(made) - 1 {
		gaps = append(gaps, made[i+1].Sub(made[i]).Round(time.Second))
	}
	return gaps
}

// A Pod that the kubelet refuses at once is made again ever more slowly, and the
// condition has the kubelet's reason all the time.
func TestPodThatIsRefusedAtOnceBacksOff(t *testing.T) {
	first := true
	gaps := failingPod(t, time.Hour, func(d *Decision) {
		c := conditionOf(&d.Status, v1alpha1.ConditionProvisioned)
		if !first {
			assert.Equal(t, v1alpha1.ReasonInstanceFailing, c.Reason)
			assert.Contains(t, c.Message, "OutOfcpu")
			assert.Contains(t, c.Message, "retried with backoff")
		}
		first = false
	})
	require.Greater(t, len(gaps), 10)
	assert.LessOrEqual(t, len(gaps), 23, "in an hour")
	for i, gap := range gaps[1:] {
		assert.LessOrEqual(t, gap, max(2*gaps[i]+2*time.Second, podRetryMost), "doubles at most")
		assert.GreaterOrEqual(t, gap, min(gaps[i], podRetryMost), "never faster")
	}
	assert.Equal(t, podRetryMost, gaps[len(gaps)-1].Truncate(time.Minute))
}

func TestPodThatServedIsReplacedOncePerMinuteAtMost(t *testing.T) {
	o := observation(proxytest.Managed())
	servedBefore(&o)
	o.Instance.State, o.Instance.Ended, o.Instance.CreatedAt = InstanceEnded, "Evicted", o.Now.Add(-20*time.Second)
	d, err := decide(o)
	require.NoError(t, err)
	assert.Equal(t, KeepInstance, d.Instance)
	assert.Contains(t, conditionOf(&d.Status, v1alpha1.ConditionProvisioned).Message, "Evicted")
	o.Proxy.Status, o.Now = d.Status, o.Now.Add(30*time.Second)
	again, err := decide(o)
	require.NoError(t, err)
	assert.Equal(t, KeepInstance, again.Instance, "its end is in the status by now")
	assert.Equal(t, d.Status, again.Status)
	o.Now = o.Now.Add(10 * time.Second)
	again, err = decide(o)
	require.NoError(t, err)
	assert.Equal(t, RemoveInstance, again.Instance)
	assert.Equal(t, d.Status, again.Status)
}

// A Pod of an earlier spec is no evidence about the next one.
func TestEndedPodOfAnEarlierSpecIsRemovedAtOnce(t *testing.T) {
	o := observation(proxytest.Managed())
	proxytest.SetCondition(o.Proxy, v1alpha1.ConditionProvisioned, no, v1alpha1.ReasonInstanceFailing, o.Now.Add(-time.Hour))
	o.Instance = instanceIn(InstanceEnded)
	d, err := decide(o)
	require.NoError(t, err)
	require.Equal(t, KeepInstance, d.Instance)
	o.Proxy.Spec.Port = 3129
	d, err = decide(o)
	require.NoError(t, err)
	assert.Equal(t, RemoveInstance, d.Instance)
}

// A create that a quota or an admission policy refuses causes no event: it is repeated,
// and past the deadline more slowly.
func TestMissingPodIsRequestedMoreSlowlyPastTheDeadline(t *testing.T) {
	tm := testTiming()
	for since, want := range map[time.Duration]time.Duration{
		0: tm.ProvisioningPoll, tm.ProvisioningDeadline: tm.ProvisioningPoll, tm.ProvisioningDeadline + time.Second: tm.DriftPoll,
	} {
		o := observation(proxytest.Managed())
		proxytest.SetCondition(o.Proxy, v1alpha1.ConditionProvisioned, no, v1alpha1.ReasonProvisioning, o.Now.Add(-since))
		d, err := decide(o)
		require.NoError(t, err)
		assert.Equal(t, MakeInstance, d.Instance)
		assert.Equal(t, want, d.ResyncAfter, "no Pod for %s", since)
	}
}

// A Pod ended before it served, and then a quota refuses the next one.
func TestMissingPodAfterOneThatFailedNamesQuotas(t *testing.T) {
	const failed = "the Pod ended before it served (OutOfcpu)"
	o := observation(proxytest.Managed())
	proxytest.SetCondition(o.Proxy, v1alpha1.ConditionProvisioned, no, v1alpha1.ReasonInstanceFailing, o.Now.Add(-time.Hour))
	meta.FindStatusCondition(o.Proxy.Status.Conditions, v1alpha1.ConditionProvisioned).Message = failed
	o.Proxy.Status.InstanceID = proxytest.PodID
	for i, want := range []string{"", "look at this Proxy's events, and for quotas and admission policies in namespace crawl", "look at this Proxy's events, and for quotas"} {
		d, err := decide(o)
		require.NoError(t, err)
		assert.Equal(t, MakeInstance, d.Instance)
		c := conditionOf(&d.Status, v1alpha1.ConditionProvisioned)
		assert.Equal(t, v1alpha1.ReasonInstanceFailing, c.Reason)
		assert.Contains(t, c.Message, failed)
		assert.Contains(t, c.Message, want)
		assert.Equal(t, min(i, 1), strings.Count(c.Message, "quotas"), "named once, and not by the answer that requests the Pod")
		o.Proxy.Status = d.Status
	}
	o.Instance = instanceIn(InstanceProvisioning)
	assert.NotContains(t, provisioned(t, o).Message, "quotas", "a Pod exists")
}

func TestEndedPodIsLookedAtWhenItsRetryIsDue(t *testing.T) {
	for name, tt := range map[string]struct {
		since time.Duration // the Proxy has had no instance when the Pod was created
		age   time.Duration // of the Pod
		want  time.Duration
	}{
		"ended at once":                         {20 * time.Second, 0, 20 * time.Second},
		"ended late":                            {time.Hour, 290 * time.Second, 10 * time.Second},
		"the clocks of hook and API differ":     {20 * time.Second, -time.Hour, 20 * time.Second},
		"due, and removed":                      {20 * time.Second, 20 * time.Second, testTiming().RemovalPoll},
		"a fraction of a second before the end": {20 * time.Second, 19900 * time.Millisecond, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			o := observation(proxytest.Managed())
			o.Instance = instanceIn(InstanceEnded)
			o.Instance.CreatedAt = o.Now.Add(-tt.age)
			proxytest.SetCondition(o.Proxy, v1alpha1.ConditionProvisioned, no, v1alpha1.ReasonInstanceFailing, o.Instance.CreatedAt.Add(-tt.since))
			d, err := decide(o)
			require.NoError(t, err)
			assert.Equal(t, tt.want, d.ResyncAfter)
		})
	}
}

func TestRunningPodWithAWaitingContainerNamesIt(t *testing.T) {
	o := observation(proxytest.Managed())
	o.Instance = runningInstance()
	o.Instance.Waiting = "CrashLoopBackOff"
	c := provisioned(t, o)
	assert.Equal(t, v1alpha1.ReasonCreated, c.Reason)
	assert.Contains(t, c.Message, "its container waits: CrashLoopBackOff")
}
