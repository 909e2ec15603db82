package proxy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

// transitionCase is a previous status, the observation now, and the Events.
type transitionCase struct {
	name string
	// before completes the observation from which the status comes.
	before func(o *Observation)
	// now changes what is observed after that.
	now func(o *Observation)
	// want are "Type Reason: message", in parts that the Event must have.
	want [][]string
}

func none(*Observation) {}

// serving is a Proxy whose Pod runs and is healthy.
func serving(o *Observation) {
	o.Instance, o.Probe = runningInstance(), proxytest.Probe(proxytest.PodID, v1alpha1.VerdictHealthy)
}

// refused is a Pod that the kubelet did not run.
func refused(reason string) Instance {
	in := instanceIn(InstanceEnded)
	in.Ended = reason
	return in
}

func verdict(v v1alpha1.Verdict, reason string) func(o *Observation) {
	return func(o *Observation) { o.Probe = reasoned(v, reason) }
}

// vmServing is a Proxy whose VM runs and is healthy.
func vmServing(o *Observation) {
	o.Proxy, o.Provider = proxytest.Cloud(), &Provider{Cloud: proxytest.GCP()}
	o.Instance, _ = VMInstance(*proxytest.RunningVM())
	o.Probe = proxytest.Probe(proxytest.VMID, v1alpha1.VerdictHealthy)
}

func vmAbsent(class adapter.FailureClass) func(o *Observation) {
	return func(o *Observation) {
		o.Proxy, o.Provider, o.Instance = vmProxyWith(o.Proxy), &Provider{Cloud: proxytest.GCP()}, Instance{VM: true, State: InstanceAbsent}
		if class != "" {
			o.Adapter.Failure = &adapter.Failure{Class: class, Message: "the cloud said no"}
		}
	}
}

// vmProxyWith is a VM's Proxy, with the status of p when that is one as well.
func vmProxyWith(p *v1alpha1.Proxy) *v1alpha1.Proxy {
	if p.Spec.Provider == proxytest.CloudProvider {
		return p
	}
	return proxytest.Cloud()
}

func deletedSince(d time.Duration) func(o *Observation) {
	return func(o *Observation) {
		at := metav1.NewTime(proxytest.Noon().Add(-d))
		o.Proxy.DeletionTimestamp, o.Finalizing = &at, true
	}
}

func both(changes ...func(o *Observation)) func(o *Observation) {
	return func(o *Observation) {
		for _, change := range changes {
			change(o)
		}
	}
}

func transitionsOfInstances() []transitionCase {
	return []transitionCase{
		{"nothing yet", nil, none, nil},
		{"a Pod is seen", none, observed(instanceIn(InstanceProvisioning)), [][]string{{"Normal Created: Pod crawl/proxy-x (id pod-uid-1) is created"}}},
		{"it runs", observed(instanceIn(InstanceProvisioning)), observed(runningInstance()), nil},
		{"a Pod without a hash", none, func(o *Observation) { o.Instance = runningInstance(); o.Instance.SpecHash = "" },
			[][]string{{"Normal Adopted: Pod crawl/proxy-x (id pod-uid-1) carries no hash"}}},
		{"a Pod that ends before it is seen", none, observed(refused("OutOfcpu")),
			[][]string{{"Warning InstanceFailing: the Pod ended before it served (OutOfcpu)"}}},
		{"a Pod that ends before it serves", observed(instanceIn(InstanceProvisioning)), observed(refused("OutOfcpu")),
			[][]string{{"Warning InstanceFailing: the Pod ended before it served (OutOfcpu)", "retried with backoff"}}},
		{"and goes", observed(refused("OutOfcpu")), func(o *Observation) { o.Instance.Terminating = true }, nil},
		{"and is gone", observed(refused("OutOfcpu")), observed(Absent()), nil},
		{"nothing new", serving, none, nil},
		{"port edited", serving, func(o *Observation) { o.Proxy.Spec.Port, o.MayReplace = 3129, true },
			[][]string{{"Normal Replacing: spec.port has changed from 3128 to 3129: Pod crawl/proxy-x (id pod-uid-1) goes"}}},
		{"placement edited", serving, func(o *Observation) {
			o.Proxy.Spec.Placement, o.MayReplace = &v1alpha1.Placement{Zone: "b"}, true
		}, [][]string{{"Normal Replacing: spec.placement or spec.cloudInit has changed: "}}},
		{"both edited", serving, func(o *Observation) {
			o.Proxy.Spec.Placement, o.Proxy.Spec.Port, o.MayReplace = &v1alpha1.Placement{Zone: "b"}, 80, true
		}, [][]string{{"Normal Replacing: spec.port has changed from 3128 to 80, and spec.placement or spec.cloudInit has changed: "}}},
		{"no budget", serving, func(o *Observation) { o.Proxy.Spec.Port = 3129 },
			[][]string{{"Normal ReplacementPending: spec.port has changed from 3128 to 3129: ", "--max-replacing"}}},
		{"its turn", both(serving, edited), func(o *Observation) { o.MayReplace = true }, [][]string{{"Normal Replacing: spec.port has changed"}}},
		{"edited before it ran", observed(instanceIn(InstanceProvisioning)), func(o *Observation) { o.Proxy.Spec.Port = 3129 },
			[][]string{{"Normal Replacing: spec.port has changed from 3128 to 3129"}}},
		{"deleted by hand", serving, func(o *Observation) { o.Instance.Terminating = true },
			[][]string{{"Warning InstanceTerminated: Pod crawl/proxy-x (id pod-uid-1) is being deleted, and not because of its spec"}}},
		{"gone at once", serving, func(o *Observation) { o.Instance = Absent() },
			[][]string{{"Warning InstanceTerminated: the instance crawl/proxy-x (id pod-uid-1) is gone"}}},
		{"another one at once", serving, func(o *Observation) { o.Instance.ID = "pod-uid-2" },
			[][]string{{"Warning InstanceTerminated: ", "(id pod-uid-1) is gone"}, {"Normal Created: Pod crawl/proxy-x"}}},
		{"evicted", serving, func(o *Observation) { o.Instance.State = InstanceEnded },
			[][]string{{"Warning InstanceTerminated: Pod crawl/proxy-x (id pod-uid-1) has ended"}}},
		{"evicted soon after it served", serving, func(o *Observation) {
			o.Instance.State, o.Instance.Ended, o.Instance.CreatedAt = InstanceEnded, "Evicted", o.Now
		}, [][]string{{"Warning InstanceTerminated: Pod crawl/proxy-x (id pod-uid-1) has ended (Evicted)"}}},
		{"evicted, and goes", both(serving, func(o *Observation) { o.Instance.State = InstanceEnded }),
			func(o *Observation) { o.Instance.Terminating = true }, nil},
		{"replaced, and goes", both(serving, func(o *Observation) { o.Proxy.Spec.Port, o.MayReplace = 3129, true }),
			func(o *Observation) { o.Instance.Terminating = true }, nil},
		{"replaced, and gone", both(serving, func(o *Observation) { o.Proxy.Spec.Port, o.MayReplace = 3129, true }), observed(Absent()), nil},
		{"a VM is stopped", vmServing, func(o *Observation) { o.Instance.State = InstanceEnded },
			[][]string{{"Warning InstanceTerminated: VM zones/", "(id " + proxytest.VMID + ") has ended"}}},
		{"the adapter is gone", vmServing, func(o *Observation) {
			o.Adapter.Blocked = unavailable()
		}, nil},
		{"External", nil, func(o *Observation) { o.Proxy, o.Provider = proxytest.External(), nil }, nil},
		{"External, moved", func(o *Observation) { o.Proxy, o.Provider = proxytest.External(), nil }, func(o *Observation) { o.Proxy.Spec.Endpoint.Port = 8081 },
			[][]string{{"Normal EndpointChanged: the endpoint is now proxy.vendor.example:8081"}}},
	}
}

func transitionsOfBlockReasons() []transitionCase {
	secret := func(o *Observation) {
		o.Proxy.Spec.CloudInit = proxytest.SecretRef().Spec.CloudInit
		o.CloudInit.Content = "v1"
		o.Instance.SpecHash = v1alpha1.SpecHash(nil, "v1", 3128)
	}
	return []transitionCase{
		{"quota", vmAbsent(""), vmAbsent(adapter.FailureQuotaExceeded), [][]string{{"Warning QuotaExceeded: the cloud said no"}}},
		{"still", vmAbsent(adapter.FailureQuotaExceeded), none, nil},
		{"stockout", vmAbsent(""), vmAbsent(adapter.FailureStockout), [][]string{{"Warning Stockout: the cloud said no"}}},
		{"refused", vmAbsent(""), vmAbsent(adapter.FailureRefused), [][]string{{"Warning CloudRefused: the cloud said no; retried with backoff"}}},
		{"still refused", vmAbsent(adapter.FailureRefused), none, nil},
		{"refused, and retried", vmAbsent(adapter.FailureRefused), func(o *Observation) { o.Instance.State = InstanceProvisioning }, nil},
		{"refused permanently", vmAbsent(""), vmAbsent(adapter.FailurePermanent), [][]string{{"Warning PermanentError: the cloud said no; not retried"}}},
		{"lost, and no room", vmServing, vmAbsent(adapter.FailureStockout), [][]string{{"Warning InstanceTerminated: ", "is gone"}, {"Warning Stockout: "}}},
		{"no adapter", nil, both(vmAbsent(""), func(o *Observation) { o.Adapter.Blocked = unavailable() }),
			[][]string{{"Warning CloudAdapterUnavailable: the cloud adapter does not answer"}}},
		{"unknown provider", nil, func(o *Observation) { o.Provider = nil }, [][]string{{`Warning UnknownProvider: the provider config has no provider "pods"`}}},
		{"unknown provider, runs", serving, func(o *Observation) { o.Provider = nil }, [][]string{{"Warning UnknownProvider: ", "the running instance stays as it is"}}},
		{"known again", both(serving, func(o *Observation) { o.Provider = nil }), func(o *Observation) { o.Provider = &Provider{} },
			[][]string{{"Normal Recovered: UnknownProvider is over: the instance is running"}}},
		{"no Secret", serving, func(o *Observation) { o.CloudInit.Problem = "secret crawl/x was not found" },
			[][]string{{"Warning CloudInitError: secret crawl/x was not found"}}},
		{"too late", observed(instanceIn(InstanceProvisioning)), func(o *Observation) {
			o.Instance.Waiting, o.Now = "ImagePullBackOff", proxytest.Noon().Add(time.Hour)
		}, [][]string{{"Warning ProvisioningTimeout: ", "ImagePullBackOff"}}},
		{"Secret rotated", both(serving, secret), func(o *Observation) { o.CloudInit.Content, o.MayReplace = "v2", true },
			[][]string{{"Normal Replacing: the content of Secret boot (spec.cloudInit.secretRef) has changed: "}}},
		{"Secret rotated, no budget", both(serving, secret), func(o *Observation) { o.CloudInit.Content = "v2" },
			[][]string{{"Normal ReplacementPending: the content of Secret boot (spec.cloudInit.secretRef) has changed: "}}},
		{"edited with a Secret", both(serving, secret), func(o *Observation) {
			o.Proxy.Spec.Placement, o.MayReplace = &v1alpha1.Placement{Zone: "b"}, true
			o.Proxy.Generation++
		}, [][]string{{"Normal Replacing: spec.placement or spec.cloudInit has changed: "}}},
	}
}

func transitionsOfHealth() []transitionCase {
	healthy, unhealthy := v1alpha1.VerdictHealthy, v1alpha1.VerdictUnhealthy
	return []transitionCase{
		{"first verdict", observed(runningInstance()), verdict(healthy, "ProbeSucceeded"),
			[][]string{{"Normal Healthy: ProbeSucceeded at 10.1.2.3:3128, targets see 198.51.100.7"}}},
		{"fails", serving, verdict(unhealthy, "DialFailed"), [][]string{{"Warning Unhealthy: DialFailed: what the prober saw"}}},
		{"still fails", both(serving, verdict(unhealthy, "DialFailed")), none, nil},
		{"fails otherwise", both(serving, verdict(unhealthy, "DialFailed")), verdict(unhealthy, "TLSTimeout"), nil},
		{"works again", both(serving, verdict(unhealthy, "DialFailed")), verdict(healthy, "ProbeSucceeded"), [][]string{{"Normal Healthy: "}}},
		{"nothing is known any more", serving, verdict(v1alpha1.VerdictUnknown, "TargetRefused"), [][]string{{"Warning HealthUnknown: TargetRefused: "}}},
		{"verdict held", serving, verdict(healthy, v1alpha1.ReasonProbeTargetDown), [][]string{{"Warning ProbeTargetDown: what the prober saw"}}},
		{"and no longer", both(serving, verdict(healthy, v1alpha1.ReasonProbeTargetDown)), verdict(healthy, "ProbeSucceeded"), nil},
		{"no ProxyProbe", observed(runningInstance()), func(o *Observation) { o.Now = proxytest.Noon().Add(time.Hour) }, [][]string{{"Warning ProbeMissing: the prober does not check it"}}},
		{"IPv6", observed(runningInstance()), func(o *Observation) { serving(o); o.Instance.IP = "2001:db8::7" },
			[][]string{{"Normal Healthy: ProbeHealthy at [2001:db8::7]:3128"}}},
		{"External fails", func(o *Observation) { o.Proxy, o.Provider = proxytest.External(), nil },
			func(o *Observation) {
				o.Probe = reasoned(unhealthy, "ProxyAuthRefused")
				o.Probe.Status.InstanceID = v1alpha1.ExternalInstanceID(*o.Proxy.Spec.Endpoint)
			}, [][]string{{"Warning Unhealthy: ProxyAuthRefused: "}}},
	}
}

func transitionsOfDeletions() []transitionCase {
	abandoned := func(o *Observation) { o.Adapter.Abandoned, o.Instance, o.Probe = true, Absent(), nil }
	return []transitionCase{
		{"deleted", serving, deletedSince(0), nil},
		{"deleted, and a verdict", serving, both(deletedSince(0), verdict(v1alpha1.VerdictUnhealthy, "DialFailed")), nil},
		{"stuck", serving, deletedSince(11 * time.Minute), [][]string{{"Warning DeletionStuck: not gone 10m0s after its deletion: ", "waiting for Pod crawl/proxy-x (id pod-uid-1) to go"}}},
		{"stuck on something else", none, both(deletedSince(11*time.Minute), func(o *Observation) { o.Probe = proxytest.Probe("x", "") }),
			[][]string{{"Warning DeletionStuck: ", "other children"}}},
		{"stuck on the cloud", vmServing, both(deletedSince(11*time.Minute), func(o *Observation) {
			o.Adapter.Blocked = unavailable()
		}), [][]string{{"Warning DeletionStuck: ", "the cloud adapter does not answer", v1alpha1.AnnotationAbandon}}},
		{"gone at last", serving, both(deletedSince(time.Hour), func(o *Observation) { o.Instance, o.Probe = Absent(), nil }), nil},
		{"abandoned", vmServing, both(deletedSince(0), abandoned),
			[][]string{{"Warning Abandoned: the annotation crawl.example.com/abandon", "id " + proxytest.VMID, "of provider " + proxytest.CloudProvider + " may run on and cost money"}}},
	}
}

func TestTransitions(t *testing.T) {
	for group, cases := range map[string][]transitionCase{
		"instances": transitionsOfInstances(), "block reasons": transitionsOfBlockReasons(), "health": transitionsOfHealth(), "deletions": transitionsOfDeletions(),
	} {
		for _, tt := range cases {
			t.Run(group+"/"+tt.name, func(t *testing.T) { tt.check(t) })
		}
	}
}

func (tt transitionCase) check(t *testing.T) {
	o := observation(proxytest.Managed())
	if tt.before != nil {
		tt.before(&o)
		d, err := decide(o)
		require.NoError(t, err)
		o.Proxy = o.Proxy.DeepCopy()
		o.Proxy.Status = d.Status
	}
	if o.Probe != nil {
		o.Probe = o.Probe.DeepCopy()
	}
	tt.now(&o)
	d, err := decide(o)
	require.NoError(t, err)
	got := transitions(o, &d)
	require.Len(t, got, len(tt.want), "%v", got)
	seen := map[string]bool{}
	for i, e := range got {
		line := e.Type + " " + e.Reason + ": " + e.Message
		assert.Contains(t, line, tt.want[i][0])
		assert.Equal(t, tt.want[i][0][:6], line[:6])
		for _, part := range tt.want[i] {
			assert.Contains(t, line, part)
		}
		assert.Contains(t, []string{corev1.EventTypeNormal, corev1.EventTypeWarning}, e.Type)
		assert.False(t, seen[e.ID], "%s is sent twice", e.ID)
		seen[e.ID] = true
	}
	o.Now = o.Now.Add(time.Second)
	again, err := decide(o)
	require.NoError(t, err)
	require.Equal(t, got, transitions(o, &again), "the same request, a second later")

	if o.Finalizing {
		return
	}
	o.Proxy.Status = again.Status
	settled, err := decide(o)
	require.NoError(t, err)
	require.Empty(t, transitions(o, &settled), "once it is in the status it is no news")
}
