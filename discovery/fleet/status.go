package fleet

import (
	"cmp"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// Status is what the holder of a lease needs to know of its proxy.
type Status struct {
	// Verdict of the prober, Unknown when it has none, or a Healthy one is stale.
	Verdict v1alpha1.Verdict
	// Reason of the verdict, or of Usable when that has another.
	Reason string
	// Usable: the proxy is leasable, free slots and cooldowns aside. Otherwise its
	// holders should change to another one.
	Usable bool
	// Message for people.
	Message string
}

// StatusOf returns the status of a proxy by what is known now.
func StatusOf(p *Proxy, f Freshness) Status {
	s := Status{Verdict: v1alpha1.VerdictUnknown, Reason: p.Reason}
	switch {
	case p.Phase == v1alpha1.PhaseUnhealthy:
		s.Verdict = v1alpha1.VerdictUnhealthy
	case p.Healthy && f.Fresh(p.ProxyUID):
		s.Verdict = v1alpha1.VerdictHealthy
	}
	ok, why := Leasable(p, f)
	if ok {
		s.Usable, s.Message = true, "probes through it succeed"+because(p.Reason)
		return s
	}
	s.Message = Explain(p, f, why)
	if why != ReasonUnhealthy && why != ReasonNotReady { // the prober and the hooks have a better one
		s.Reason = string(why)
	}
	s.Reason = cmp.Or(s.Reason, string(why))
	return s
}
