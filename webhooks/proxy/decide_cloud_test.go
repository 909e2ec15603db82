package proxy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

// vm is an observation of proxytest.Cloud with that instance.
func vm(t *testing.T, answer *adapter.Instance) Observation {
	t.Helper()
	o := observation(proxytest.Cloud())
	o.Provider = &Provider{Cloud: proxytest.GCP()}
	in, err := VMInstance(*answer)
	require.NoError(t, err)
	o.Instance, o.Adapter.Failure = in, answer.Failure
	return o
}

func absentVM(class adapter.FailureClass) *adapter.Instance {
	out := &adapter.Instance{State: adapter.StateAbsent, Action: adapter.ActionInserting}
	if class != "" {
		out.Action = adapter.ActionNone
		out.Failure = &adapter.Failure{Class: class, Message: "ZONE_RESOURCE_POOL_EXHAUSTED in europe-west1-b"}
	}
	return out
}

// The same table as for Pods, with the adapter's answer in the place of the Pod.
func TestDecideVM(t *testing.T) {
	tm := testTiming()
	keep := func(*Observation) {}
	edit := func(o *Observation) {
		o.Proxy.Spec.Placement.Zone = "europe-west1-c"
		o.Probe = proxytest.Probe(proxytest.VMID, v1alpha1.VerdictHealthy)
	}
	for _, tt := range []struct {
		row
		answer  *adapter.Instance
		replace string
	}{
		{row{"absent", keep, MakeInstance, false, no, v1alpha1.ReasonProvisioning, v1alpha1.PhaseProvisioning, tm.ProvisioningPoll, false}, absentVM(""), ""},
		{row{"absent, trying again", keep, MakeInstance, false, no, v1alpha1.ReasonProvisioning, v1alpha1.PhaseProvisioning, tm.ProvisioningPoll, false}, absentVM(adapter.FailureTransient), ""},
		{row{"quota used up", keep, MakeInstance, false, no, v1alpha1.ReasonQuotaExceeded, v1alpha1.PhaseProvisioning, tm.QuotaRetry, false}, absentVM(adapter.FailureQuotaExceeded), ""},
		{row{"zone used up", keep, MakeInstance, false, no, v1alpha1.ReasonStockout, v1alpha1.PhaseProvisioning, tm.QuotaRetry, false}, absentVM(adapter.FailureStockout), ""},
		{row{"refused for now", keep, MakeInstance, false, no, v1alpha1.ReasonCloudRefused, v1alpha1.PhaseFailed, tm.QuotaRetry, false}, absentVM(adapter.FailureRefused), ""},
		{row{"refused for now, a retry is in flight", keep, MakeInstance, false, no, v1alpha1.ReasonCloudRefused, v1alpha1.PhaseFailed, tm.QuotaRetry, false}, retrying(adapter.FailureRefused), ""},
		{row{"quota used up, a retry is in flight", keep, MakeInstance, false, no, v1alpha1.ReasonQuotaExceeded, v1alpha1.PhaseProvisioning, tm.QuotaRetry, false}, retrying(adapter.FailureQuotaExceeded), ""},
		{row{"refused permanently, and its VM is not gone", keep, MakeInstance, false, no, v1alpha1.ReasonProvisioning, v1alpha1.PhaseProvisioning, tm.ProvisioningPoll, false}, retrying(adapter.FailurePermanent), ""},
		{row{"refused permanently", keep, MakeInstance, false, no, v1alpha1.ReasonPermanentError, v1alpha1.PhaseFailed, tm.DriftPoll, false}, absentVM(adapter.FailurePermanent), ""},
		{row{"coming up", keep, MakeInstance, false, no, v1alpha1.ReasonProvisioning, v1alpha1.PhaseProvisioning, tm.ProvisioningPoll, false}, proxytest.VM(adapter.StateProvisioning), ""},
		{row{"runs without an address", keep, MakeInstance, false, no, v1alpha1.ReasonProvisioning, v1alpha1.PhaseProvisioning, tm.ProvisioningPoll, false}, noIP(), ""},
		{row{"runs, never probed", keep, MakeInstance, true, yes, v1alpha1.ReasonCreated, v1alpha1.PhaseProbing, tm.ProvisioningPoll, false}, proxytest.RunningVM(), ""},
		{row{"runs, healthy", func(o *Observation) { o.Probe = proxytest.Probe(proxytest.VMID, v1alpha1.VerdictHealthy) },
			MakeInstance, true, yes, v1alpha1.ReasonCreated, v1alpha1.PhaseReady, tm.DriftPoll, false}, proxytest.RunningVM(), ""},
		{row{"outdated, replacement allowed", func(o *Observation) { edit(o); o.MayReplace = true },
			RemoveInstance, false, no, v1alpha1.ReasonReplacing, v1alpha1.PhaseReplacing, tm.RemovalPoll, false}, proxytest.RunningVM(), proxytest.VMID},
		{row{"outdated, budget used up", edit,
			KeepInstance, true, yes, v1alpha1.ReasonReplacementPending, v1alpha1.PhaseReady, tm.BudgetPoll, false}, proxytest.RunningVM(), ""},
		{row{"outdated before it ran", edit,
			RemoveInstance, false, no, v1alpha1.ReasonReplacing, v1alpha1.PhaseReplacing, tm.RemovalPoll, false}, proxytest.VM(adapter.StateProvisioning), proxytest.VMID},
		{row{"outdated before it was observed: waits for its id", edit,
			MakeInstance, false, no, v1alpha1.ReasonProvisioning, v1alpha1.PhaseProvisioning, tm.ProvisioningPoll, false}, unseen(), ""},
		{row{"stopping", func(o *Observation) {
			proxytest.SetCondition(o.Proxy, v1alpha1.ConditionProvisioned, no, v1alpha1.ReasonReplacing, proxytest.Noon())
		}, RemoveInstance, false, no, v1alpha1.ReasonReplacing, v1alpha1.PhaseReplacing, tm.RemovalPoll, false}, proxytest.VM(adapter.StateStopping), ""},
		{row{"stopped: the adapter makes another one", keep,
			RemoveInstance, false, no, v1alpha1.ReasonInstanceTerminated, v1alpha1.PhaseReplacing, tm.RemovalPoll, false}, proxytest.VM(adapter.StateStopped), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			change := tt.change
			tt.change = func(o *Observation) { *o = vm(t, tt.answer); change(o) }
			d := tt.check(t)
			assert.Equal(t, tt.replace, d.Replace)
		})
	}
}

func noIP() *adapter.Instance {
	vm := proxytest.RunningVM()
	vm.IP = ""
	return vm
}

// retrying is an instance that may exist, after that failure.
func retrying(class adapter.FailureClass) *adapter.Instance {
	out := unseen()
	out.Failure = absentVM(class).Failure
	return out
}

func unseen() *adapter.Instance {
	return &adapter.Instance{State: adapter.StateProvisioning, Action: adapter.ActionInserting}
}

func TestDecideVMFinalizing(t *testing.T) {
	tm := testTiming()
	for _, tt := range []struct {
		row
		instance Instance
		message  string
	}{
		{row{"runs", func(*Observation) {}, RemoveInstance, false, no, v1alpha1.ReasonDeleting, v1alpha1.PhaseDeleting, tm.RemovalPoll, false}, Instance{VM: true, State: InstanceRunning, Terminating: true, ID: proxytest.VMID}, "the Proxy is being deleted"},
		{row{"cannot be deleted", func(o *Observation) {
			o.Adapter.Failure = &adapter.Failure{Class: adapter.FailureTransient, Message: "it is protected"}
		}, RemoveInstance, false, no, v1alpha1.ReasonDeleting, v1alpha1.PhaseDeleting, tm.RemovalPoll, false}, Instance{VM: true, State: InstanceRunning, ID: proxytest.VMID}, "the cloud reports: it is protected"},
		{row{"adapter unavailable", func(o *Observation) {
			o.Adapter.Blocked = unavailable()
		}, RemoveInstance, false, no, v1alpha1.ReasonDeleting, v1alpha1.PhaseDeleting, tm.RemovalPoll, false}, Instance{VM: true, State: InstanceUnknown}, v1alpha1.AnnotationAbandon},
		{row{"abandoned", func(o *Observation) { o.Adapter.Abandoned = true },
			RemoveInstance, false, no, v1alpha1.ReasonDeleting, v1alpha1.PhaseDeleting, 0, true}, Absent(), "may run on and cost money"},
		{row{"gone", func(*Observation) {}, RemoveInstance, false, no, v1alpha1.ReasonDeleting, v1alpha1.PhaseDeleting, 0, true}, Absent(), ""},
		{row{"gone, probe left", func(o *Observation) { o.Probe = proxytest.Probe(proxytest.VMID, v1alpha1.VerdictHealthy) },
			RemoveInstance, false, no, v1alpha1.ReasonDeleting, v1alpha1.PhaseDeleting, tm.RemovalPoll, false}, Absent(), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			change := tt.change
			tt.change = func(o *Observation) {
				o.Proxy, o.Provider, o.Instance, o.Finalizing = proxytest.Cloud(), &Provider{Cloud: proxytest.GCP()}, tt.instance, true
				change(o)
			}
			d := tt.check(t)
			assert.Contains(t, meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionProvisioned).Message, tt.message)
			assert.Equal(t, tt.instance.ID, d.Status.InstanceID, "the next call tells the adapter where to look")
		})
	}
}

// While the adapter is unavailable, everything stays as it is.
func TestDecideVMWhileTheAdapterIsUnavailable(t *testing.T) {
	tm := testTiming()
	silent := func(p *v1alpha1.Proxy) func(o *Observation) {
		return func(o *Observation) {
			o.Proxy, o.Provider, o.Instance = p, &Provider{Cloud: proxytest.GCP()}, VMFromStatus(&p.Status)
			o.Adapter.Blocked = unavailable()
			o.MayReplace = true
		}
	}
	replacing := proxytest.ServedBy(proxytest.Cloud(), proxytest.RunningVM())
	proxytest.SetCondition(replacing, v1alpha1.ConditionProvisioned, no, v1alpha1.ReasonReplacing, proxytest.Noon())
	replacing.Status.IP, replacing.Status.Port = "", 0
	outdated := proxytest.ServedBy(proxytest.Cloud(), proxytest.RunningVM())
	outdated.Spec.Port = 3129
	waiting := proxytest.SetCondition(proxytest.Cloud(), v1alpha1.ConditionProvisioned, no, v1alpha1.ReasonQuotaExceeded, proxytest.Noon())
	waiting.Status.SpecHash = proxytest.Hash(waiting)
	healthy := func(p *v1alpha1.Proxy) func(o *Observation) {
		return func(o *Observation) { silent(p)(o); o.Probe = proxytest.Probe(proxytest.VMID, v1alpha1.VerdictHealthy) }
	}
	for _, r := range []row{
		{"Ready", healthy(proxytest.ServedBy(proxytest.Cloud(), proxytest.RunningVM())), KeepInstance, true, yes, v1alpha1.ReasonCreated, v1alpha1.PhaseReady, tm.DriftPoll, false},
		{"Ready, and the prober finds it ill", func(o *Observation) {
			silent(proxytest.ServedBy(proxytest.Cloud(), proxytest.RunningVM()))(o)
			o.Probe = proxytest.Probe(proxytest.VMID, v1alpha1.VerdictUnhealthy)
		}, KeepInstance, true, yes, v1alpha1.ReasonCreated, v1alpha1.PhaseUnhealthy, tm.DriftPoll, false},
		{"outdated", healthy(outdated), KeepInstance, true, yes, v1alpha1.ReasonReplacementPending, v1alpha1.PhaseReady, tm.DriftPoll, false},
		{"being replaced", silent(replacing), KeepInstance, false, no, v1alpha1.ReasonReplacing, v1alpha1.PhaseReplacing, tm.ProvisioningPoll, false},
		{"never had one", silent(proxytest.Cloud()), KeepInstance, false, no, v1alpha1.ReasonCloudAdapterUnavailable, v1alpha1.PhaseProvisioning, tm.ProvisioningPoll, false},
		{"waiting for one", silent(waiting), KeepInstance, false, no, v1alpha1.ReasonCloudAdapterUnavailable, v1alpha1.PhaseProvisioning, tm.ProvisioningPoll, false},
	} {
		t.Run(r.name, func(t *testing.T) {
			o := observation(proxytest.Cloud())
			r.change(&o)
			before := o.Proxy.Status.DeepCopy()
			d := r.check(t)
			assert.Empty(t, d.Replace)
			assert.True(t, d.KeepStrays)
			assert.False(t, asksBudget(o), "no place in the budget is taken")
			for name, get := range map[string]func(s *v1alpha1.ProxyStatus) any{
				"ip":         func(s *v1alpha1.ProxyStatus) any { return s.IP },
				"port":       func(s *v1alpha1.ProxyStatus) any { return s.Port },
				"providerID": func(s *v1alpha1.ProxyStatus) any { return s.ProviderID },
				"instanceID": func(s *v1alpha1.ProxyStatus) any { return s.InstanceID },
				"specHash":   func(s *v1alpha1.ProxyStatus) any { return s.SpecHash },
			} {
				assert.Equal(t, get(before), get(&d.Status), name)
			}
		})
	}
}

// What a VM must have is checked before anybody is asked, so that an edit that
// takes it away costs no running VM.
func TestDecideVMNamesWhatIsMissing(t *testing.T) {
	for field, change := range map[string]func(p *v1alpha1.Placement){
		"placement.zone":        func(p *v1alpha1.Placement) { p.Zone = "" },
		"placement.machineType": func(p *v1alpha1.Placement) { p.MachineType = "" },
		"placement.image":       func(p *v1alpha1.Placement) { p.Image = "" },
	} {
		o := vm(t, proxytest.RunningVM())
		change(o.Proxy.Spec.Placement)
		o.MayReplace = true
		c := provisioned(t, o)
		assert.Equal(t, yes, c.Status, "the running VM is left alone")
		assert.Equal(t, v1alpha1.ReasonPermanentError, c.Reason)
		assert.Contains(t, c.Message, field+" is required")

		o.Instance = Absent()
		c = provisioned(t, o)
		assert.Equal(t, no, c.Status)
		assert.Contains(t, c.Message, field+" is required")
	}
	o := vm(t, absentVM(""))
	o.Proxy.Spec.Placement = nil
	message := provisioned(t, o).Message
	assert.NotContains(t, message, "\n")
	for _, field := range []string{"zone", "machineType", "image"} {
		assert.Contains(t, message, "placement."+field+" is required")
	}
}

// A type that changed under a provider's name takes nothing away.
func TestDecideAnotherTypeUnderTheSameName(t *testing.T) {
	pod := observation(proxytest.Cloud())
	pod.Provider, pod.Instance, pod.MayReplace = &Provider{Cloud: proxytest.GCP()}, runningInstance(), true
	vm := observation(proxytest.ServedBy(proxytest.Managed(), proxytest.RunningVM()))
	vm.Instance, vm.MayReplace = VMFromStatus(&vm.Proxy.Status), true
	for name, o := range map[string]Observation{"a Pod, and VMs by now": pod, "a VM, and Pods by now": vm} {
		d, err := decide(o)
		require.NoError(t, err)
		assert.Equal(t, KeepInstance, d.Instance, name)
		c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionProvisioned)
		assert.Equal(t, yes, c.Status)
		assert.Equal(t, v1alpha1.ReasonUnknownProvider, c.Reason)
		assert.Contains(t, c.Message, "of another type")
		assert.Equal(t, o.Instance.ID, d.Status.InstanceID)
	}
}

// A Pod's failure is not the VM's, which the same provider name may mean by now.
func TestFailureOfAnEarlierPodHidesNoneOfTheCloud(t *testing.T) {
	for class, want := range map[adapter.FailureClass]string{
		"": v1alpha1.ReasonProvisioning, adapter.FailureQuotaExceeded: v1alpha1.ReasonQuotaExceeded, adapter.FailureRefused: v1alpha1.ReasonCloudRefused,
	} {
		o := vm(t, absentVM(class))
		proxytest.SetCondition(o.Proxy, v1alpha1.ConditionProvisioned, no, v1alpha1.ReasonInstanceFailing, proxytest.Noon())
		assert.Equal(t, want, provisioned(t, o).Reason)
	}
}

// Until the absence of the VM is confirmed, nothing claims a retry that never comes.
func TestPermanentFailureIsNeverCalledRetried(t *testing.T) {
	message := provisioned(t, vm(t, retrying(adapter.FailurePermanent))).Message
	assert.Contains(t, message, "the cloud reports: ZONE_RESOURCE")
	assert.NotContains(t, message, "retried with backoff")
	message = provisioned(t, vm(t, absentVM(adapter.FailurePermanent))).Message
	assert.Contains(t, message, "not retried before the spec")
	assert.Contains(t, provisioned(t, vm(t, retrying(adapter.FailureTransient))).Message, "retried with backoff")
}

func TestShortagePoll(t *testing.T) {
	tm := testTiming()
	for after, want := range map[int64]time.Duration{
		0: tm.QuotaRetry, -3: tm.QuotaRetry, 20: 20*time.Second + tm.ProvisioningPoll, 299: tm.QuotaRetry, 1 << 40: tm.QuotaRetry, 1 << 62: tm.QuotaRetry,
	} {
		answer := absentVM(adapter.FailureStockout)
		answer.Failure.RetryAfterSeconds = after
		d, err := decide(vm(t, answer))
		require.NoError(t, err)
		assert.Equal(t, want, d.ResyncAfter, "%d s", after)
		message := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionProvisioned).Message
		assert.Equal(t, answer.Failure.Message+"; retried with backoff", message, "and no time of the next try, which would change with the clock")
	}
}

func TestProvisioningTimeoutOfVMs(t *testing.T) {
	start := proxytest.Noon().Add(-time.Hour)
	asked := func(o *Observation) {
		proxytest.SetCondition(o.Proxy, v1alpha1.ConditionProvisioned, no, v1alpha1.ReasonProvisioning, start)
	}
	old := proxytest.VM(adapter.StateProvisioning)
	old.CreatedAt = &start
	for name, tt := range map[string]struct {
		answer *adapter.Instance
		change func(o *Observation)
		reason string
		want   string
	}{
		"comes up for too long":     {old, func(*Observation) {}, v1alpha1.ReasonProvisioningTimeout, "look at zones/europe-west1-b/instances/"},
		"not observed for long":     {unseen(), asked, v1alpha1.ReasonProvisioningTimeout, "look at proxy-"},
		"is never made":             {absentVM(adapter.FailureTransient), asked, v1alpha1.ReasonProvisioningTimeout, "the cloud reports: ZONE_RESOURCE"},
		"a shortage is no failure":  {absentVM(adapter.FailureStockout), asked, v1alpha1.ReasonStockout, "ZONE_RESOURCE"},
		"a quota is no failure":     {absentVM(adapter.FailureQuotaExceeded), asked, v1alpha1.ReasonQuotaExceeded, "ZONE_RESOURCE"},
		"requested just now":        {absentVM(""), func(*Observation) {}, v1alpha1.ReasonProvisioning, "being created"},
		"an unknown class is tried": {absentVM("Odd"), func(*Observation) {}, v1alpha1.ReasonProvisioning, "the cloud reports: ZONE_RESOURCE"},
	} {
		t.Run(name, func(t *testing.T) {
			o := vm(t, tt.answer)
			tt.change(&o)
			c := provisioned(t, o)
			assert.Equal(t, tt.reason, c.Reason)
			assert.Contains(t, c.Message, tt.want)
		})
	}
}

// A VM asks for the password that its user data gave it; only of Pods is it
// known that they do not.
func TestNoCredentialsNoteOnVMs(t *testing.T) {
	o := vm(t, proxytest.RunningVM())
	o.Proxy.Spec.CredentialsRef = &v1alpha1.CredentialsRef{Name: "login"}
	assert.NotContains(t, provisioned(t, o).Message, "credentials")
}
