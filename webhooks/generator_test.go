package webhooks

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

// generator makes requests that a hook might meet, plausible and not, always
// the same for the same seed.
type generator struct {
	*rand.Rand
	t testing.TB
}

// generated is one request and what is known about it.
type generated struct {
	request
	budget bool         // whether a replacement is allowed
	cloud  *fakeAdapter // of VMs
}

func pick[T any](g generator, choices ...T) T { return choices[g.IntN(len(choices))] }

func (g generator) proxy() *v1alpha1.Proxy {
	if g.IntN(5) == 0 {
		return proxytest.External()
	}
	p := proxytest.Managed()
	p.Spec.Provider = pick(g, "pods", "pods", "pods", "unknown")
	p.Spec.Port = pick[int32](g, 3128, 3128, 80, 0)
	p.Spec.Placement = pick(g, nil, &v1alpha1.Placement{Zone: "a"})
	p.Spec.CredentialsRef = pick(g, nil, &v1alpha1.CredentialsRef{Name: "login"})
	p.Spec.HealthCheck = pick(g, p.Spec.HealthCheck, nil)
	p.Spec.CloudInit = pick(g, nil, nil, &v1alpha1.CloudInit{Inline: "#cloud-config"}, proxytest.SecretRef().Spec.CloudInit)
	p.Annotations = pick(g, nil, map[string]string{v1alpha1.AnnotationAbandon: "true"})
	return p
}

func (g generator) status(p *v1alpha1.Proxy) {
	at := proxytest.Noon().Add(-pick(g, time.Second, time.Minute, 9*time.Minute))
	if g.IntN(4) > 0 {
		reason := pick(g, v1alpha1.ReasonProvisioning, v1alpha1.ReasonCreated, v1alpha1.ReasonReplacing, v1alpha1.ReasonReplacementPending,
			v1alpha1.ReasonInstanceTerminated, v1alpha1.ReasonProvisioningTimeout, v1alpha1.ReasonUnknownProvider, v1alpha1.ReasonCloudInitError, v1alpha1.ReasonExternalEndpoint, v1alpha1.ReasonInstanceFailing)
		proxytest.SetCondition(p, v1alpha1.ConditionProvisioned, pick(g, yes, no), reason, at)
	}
	if g.IntN(4) > 0 {
		proxytest.SetCondition(p, v1alpha1.ConditionHealthy, pick(g, yes, no, metav1.ConditionUnknown), pick(g, "ProbeSucceeded", v1alpha1.ReasonReplacing, proxy.ReasonNoInstance), at)
	}
	p.Status.InstanceID = pick(g, "", proxytest.PodID, "another")
	if p.Spec.Mode == v1alpha1.ModeManaged {
		p.Status.ProviderID = p.Namespace + "/" + v1alpha1.InstanceName(p.UID)
	}
	p.Status.SpecHash = pick(g, "", proxytest.Hash(p), proxytest.OtherHash, "v9-other")
	p.Status.IP, p.Status.Port = pick(g, "", "10.9.9.9"), pick[int32](g, 0, 3128, 8888)
}

func (g generator) pod(p *v1alpha1.Proxy) *corev1.Pod {
	pod := proxytest.Pod(g.t, p, pick(g, corev1.PodPending, corev1.PodRunning, corev1.PodRunning, corev1.PodRunning, corev1.PodFailed, corev1.PodSucceeded, corev1.PodUnknown, ""), pick(g, "", "10.1.2.3", "10.1.2.3"))
	if hash := pick(g, "right", "right", proxytest.OtherHash, "v1-typed", "v9-other", ""); hash != "right" {
		pod.Annotations[v1alpha1.AnnotationSpecHash] = hash
	}
	pod.CreationTimestamp = metav1.NewTime(proxytest.Noon().Add(-pick(g, time.Second, time.Minute, time.Hour)))
	pod.Status.Reason = map[corev1.PodPhase]string{corev1.PodFailed: "Evicted", corev1.PodSucceeded: "not a reason!"}[pod.Status.Phase]
	if g.IntN(5) == 0 {
		now := metav1.NewTime(proxytest.Noon())
		pod.DeletionTimestamp = &now
	}
	if g.IntN(4) == 0 {
		pod.Spec.Containers[0].Ports = nil
	}
	return pod
}

func (g generator) probe(p *v1alpha1.Proxy) *v1alpha1.ProxyProbe {
	id := proxytest.PodID
	if p.Spec.Endpoint != nil {
		id = v1alpha1.ExternalInstanceID(*p.Spec.Endpoint)
	}
	probe := proxytest.Probe(pick(g, id, id, "another"), pick(g, v1alpha1.VerdictHealthy, v1alpha1.VerdictUnhealthy, v1alpha1.VerdictUnknown, ""))
	probe.Status.Reason = pick(g, "ProbeSucceeded", "", "not a reason!")
	if g.IntN(6) == 0 {
		now := metav1.NewTime(proxytest.Noon())
		probe.DeletionTimestamp = &now
	}
	return probe
}

func (g generator) next() generated {
	p := g.proxy()
	out := generated{request: request{proxy: p, finalizing: g.IntN(6) == 0}, budget: g.IntN(2) == 0}
	if g.IntN(2) == 0 {
		out.secrets = append(out.secrets, bootSecret("#!/bin/sh"))
	}
	if g.IntN(5) > 0 && p.Spec.Mode == v1alpha1.ModeManaged {
		out.pods = append(out.pods, g.pod(p))
	}
	if g.IntN(3) > 0 {
		out.probes = append(out.probes, g.probe(p))
	}
	for i := range pick(g, 0, 0, 0, 0, 0, 0, 1, 3) {
		stray := g.pod(p)
		stray.Name, stray.UID = fmt.Sprintf("stray-%d", i), types.UID(fmt.Sprintf("stray-uid-%d", i))
		out.pods = append(out.pods, stray)
	}
	g.status(p)
	return out
}

// vm makes the request about a Proxy whose instance is a VM, and the adapter that
// reports it.
func (g generator) vm() generated {
	p := proxytest.Cloud()
	p.Spec.Port = pick[int32](g, 3128, 3128, 80)
	p.Spec.CloudInit = pick(g, nil, nil, &v1alpha1.CloudInit{Inline: "#cloud-config"}, proxytest.SecretRef().Spec.CloudInit)
	p.Spec.CredentialsRef = pick(g, nil, &v1alpha1.CredentialsRef{Name: "login"})
	p.Annotations = pick(g, nil, nil, map[string]string{v1alpha1.AnnotationAbandon: "true"})
	p.Finalizers = pick(g, p.Finalizers, p.Finalizers, p.Finalizers, p.Finalizers, nil)
	if g.IntN(8) == 0 {
		p.Spec.Placement = pick(g, nil, &v1alpha1.Placement{Zone: "a"})
	}
	out := generated{request: request{proxy: p, finalizing: g.IntN(5) == 0}, budget: g.IntN(2) == 0, cloud: g.adapter()}
	if g.IntN(2) == 0 {
		out.secrets = append(out.secrets, bootSecret("#!/bin/sh"))
	}
	if g.IntN(3) > 0 {
		out.probes = append(out.probes, proxytest.Probe(pick(g, proxytest.VMID, proxytest.VMID, "another"), pick(g, v1alpha1.VerdictHealthy, v1alpha1.VerdictUnhealthy, "")))
	}
	if g.IntN(10) == 0 {
		out.pods = append(out.pods, g.pod(p)) // its provider ran Pods once
	}
	g.vmStatus(p)
	return out
}

func (g generator) adapter() *fakeAdapter {
	f := &fakeAdapter{vm: pick(g, nil, nil, proxytest.VM(adapter.StateProvisioning), proxytest.RunningVM(), proxytest.RunningVM(), proxytest.VM(adapter.StateStopping), proxytest.VM(adapter.StateStopped))}
	if f.vm == nil {
		class := pick(g, "", "", adapter.FailurePermanent, adapter.FailureQuotaExceeded, adapter.FailureStockout, adapter.FailureRefused, adapter.FailureTransient, "Odd")
		if class != "" {
			f.failure = &adapter.Failure{Class: class, Message: "the cloud said no", RetryAfterSeconds: pick[int64](g, 0, 3, 1<<40, -7)}
		}
		return f
	}
	f.vm.SpecHash = pick(g, f.vm.SpecHash, f.vm.SpecHash, proxytest.OtherHash, "v9-other", "")
	f.vm.Port, f.vm.CreatedAt = pick(g, f.vm.Port, 0), pick(g, f.vm.CreatedAt, nil)
	if g.IntN(3) == 0 {
		names := slices.Sorted(maps.Keys(adapterErrors()))
		f.err = adapterErrors()[pick(g, names...)]
	}
	return f
}

func (g generator) vmStatus(p *v1alpha1.Proxy) {
	at := proxytest.Noon().Add(-pick(g, time.Second, time.Minute, 9*time.Minute))
	switch g.IntN(4) {
	case 0: // never synced
	case 1:
		reason := pick(g, v1alpha1.ReasonProvisioning, v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonStockout, v1alpha1.ReasonCloudRefused, v1alpha1.ReasonPermanentError, v1alpha1.ReasonCloudAdapterUnavailable, v1alpha1.ReasonProvisioningTimeout)
		proxytest.SetCondition(p, v1alpha1.ConditionProvisioned, no, reason, at)
		p.Status.SpecHash = pick(g, "", proxytest.Hash(p), proxytest.Hash(p), proxytest.OtherHash)
	case 2:
		proxytest.ServedBy(p, proxytest.RunningVM())
		proxytest.SetCondition(p, v1alpha1.ConditionProvisioned, no, v1alpha1.ReasonReplacing, at)
		p.Status.IP, p.Status.Port, p.Status.SpecHash = "", 0, pick(g, proxytest.Hash(p), proxytest.OtherHash)
	default:
		proxytest.ServedBy(p, proxytest.RunningVM())
		p.Status.SpecHash = pick(g, proxytest.Hash(p), proxytest.OtherHash)
	}
}

func (c generated) hook() string {
	if c.finalizing {
		return "finalize"
	}
	return "sync"
}

// generatedCases and generatedVMs are how many requests each point of the
// contract is tried on.
const (
	generatedCases = 120
	generatedVMs   = 60
)
