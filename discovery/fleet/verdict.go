package fleet

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// verdict is what a ProxyProbe says against an instance. The hook makes a status of
// it, and that may take its time: webhooks or Metacontroller may be away, or wait
// before they try again.
type verdict struct {
	instance lease.Instance // that it is about
	phase    v1alpha1.Phase // of the status that the hook makes of it
	reason   string
	probed   time.Time // when the probe began that led to it
}

// against returns nil when the ProxyProbe says nothing against any instance: it is
// the hook alone that says when a proxy is Ready.
func against(p *v1alpha1.ProxyProbe) *verdict {
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return nil
	}
	v := &verdict{
		instance: lease.Instance{ProxyUID: string(owner.UID), ID: p.Status.InstanceID},
		reason:   p.Status.Reason,
	}
	switch p.Status.Verdict {
	case v1alpha1.VerdictUnhealthy:
		v.phase = v1alpha1.PhaseUnhealthy
	case v1alpha1.VerdictUnknown:
		v.phase = v1alpha1.PhaseProbing
	default:
		return nil
	}
	if p.Status.LastProbeTime != nil {
		v.probed = p.Status.LastProbeTime.Time
	}
	return v
}

// under returns the proxy as it is when v is all that its ProxyProbe says against
// it, nil for nothing.
func (p *Proxy) under(v *verdict) *Proxy {
	told := p
	if p.Ahead {
		told = p.told
	}
	switch {
	case v == nil || !v.refutes(told):
		return told
	case p.Ahead && p.Phase == v.phase && p.Reason == v.reason:
		return p
	}
	out := *told
	out.Phase, out.Healthy, out.Reason = v.phase, false, v.reason
	out.Ahead, out.told = true, told
	return &out
}

// refutes reports whether the status of p, which says Ready, is from before v. A
// status that rests on a later probe is not: our watch of the ProxyProbes is behind
// that of the Proxies, and must not keep a proxy from crawlers that has recovered.
// API times are whole seconds; within the same one the verdict is believed.
func (v *verdict) refutes(p *Proxy) bool {
	return p.Phase == v1alpha1.PhaseReady && v.instance == p.Instance && !v.probed.Before(p.checked)
}
