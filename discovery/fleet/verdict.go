package fleet

import (
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// verdict is a ProxyProbe's verdict against an instance. The hook sets the Proxy's
// status from it, which may be delayed: webhooks or Metacontroller may be down, or
// back off before a retry.
type verdict struct {
	instance lease.Instance
	phase    v1alpha1.Phase // that the hook will set
	reason   string
	probed   time.Time // start of the probe that led to it
}

// verdictAgainst returns nil when the ProxyProbe has no verdict against an instance:
// only the hook makes a Proxy Ready.
func verdictAgainst(p *v1alpha1.ProxyProbe) *verdict {
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

// withVerdict returns the proxy with v as its ProxyProbe's verdict, nil for none.
func (p *Proxy) withVerdict(v *verdict) *Proxy {
	byStatus := p
	if p.VerdictAhead {
		byStatus = p.byStatus
	}
	switch {
	case v == nil || !v.isNewer(byStatus):
		return byStatus
	case p.VerdictAhead && p.Phase == v.phase && p.Reason == v.reason:
		return p
	}
	out := *byStatus
	out.Phase, out.Healthy, out.Reason = v.phase, false, v.reason
	out.VerdictAhead, out.byStatus = true, byStatus
	return &out
}

// isNewer reports whether the Ready status of p is older than v. It is not when it
// rests on a later probe: then the watch of ProxyProbes lags behind that of Proxies,
// and must not withhold a proxy that has recovered. API times are whole seconds;
// within the same second the verdict wins.
func (v *verdict) isNewer(p *Proxy) bool {
	return p.Phase == v1alpha1.PhaseReady && v.instance == p.Instance && !v.probed.Before(p.checked)
}

// probeRecord is the part of a ProxyProbe that is used.
type probeRecord struct {
	metav1.ObjectMeta // namespace and name
	verdict           *verdict
}

// newProbes returns the store of ProxyProbes. It passes their verdicts to proxies and
// keeps nothing itself: the ProxyProbes of healthy proxies take no memory.
func newProbes(log *slog.Logger, proxies *proxies, changed *lease.Signal) *objectStore[*probeRecord] {
	return &objectStore[*probeRecord]{
		changed: changed,
		read:    func(obj any) (*probeRecord, error) { return readProbe(log, obj) },
		put:     func(r *probeRecord) { proxies.setVerdict(key(r.Namespace, r.Name), r.verdict) },
		remove:  func(r *probeRecord) { proxies.setVerdict(key(r.Namespace, r.Name), nil) },
		replace: func(list []*probeRecord) {
			verdicts := map[string]*verdict{}
			for _, r := range list {
				if r.verdict != nil {
					verdicts[key(r.Namespace, r.Name)] = r.verdict
				}
			}
			proxies.setVerdicts(verdicts)
		},
	}
}

// readProbe logs an object that does not fit our types and ignores its verdict: the
// Proxy's status applies, as without a ProxyProbe.
func readProbe(log *slog.Logger, obj any) (*probeRecord, error) {
	if r, ok := obj.(*probeRecord); ok {
		return r, nil
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("watch of proxyprobes returned a %T", obj)
	}
	r := &probeRecord{ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName()}}
	var p v1alpha1.ProxyProbe
	if err := v1alpha1.FromUnstructured(u.Object, &p); err != nil {
		log.Error("proxyprobe ignored: the object does not fit this version's types; is the CRD of another version?",
			"namespace", r.Namespace, "proxy", r.Name, "err", err)
		return r, nil
	}
	r.verdict = verdictAgainst(&p)
	return r, nil
}
