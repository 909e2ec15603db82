package fleet

import (
	"fmt"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// Reason is why the fleet does not offer a proxy. Free slots and cooldowns are the
// lease store's.
type Reason string

const (
	// ReasonNone: it is leasable.
	ReasonNone Reason = ""
	// ReasonDeleting: the Proxy is being deleted.
	ReasonDeleting Reason = "Deleting"
	// ReasonLeasingDisabled: spec.maxLeases is 0.
	ReasonLeasingDisabled Reason = "LeasingDisabled"
	// ReasonUnhealthy: probes through it fail.
	ReasonUnhealthy Reason = "Unhealthy"
	// ReasonNotReady: no instance is running, or no verdict is in.
	ReasonNotReady Reason = "NotReady"
	// ReasonStatusOutdated: the status is older than the spec, so that the instance
	// may be about to be replaced.
	ReasonStatusOutdated Reason = "StatusOutdated"
	// ReasonNoAddress: the status has no host or port.
	ReasonNoAddress Reason = "NoAddress"
	// ReasonVerdictStale: no live prober shard owns the Proxy.
	ReasonVerdictStale Reason = "VerdictStale"
)

const maxPort = 1<<16 - 1

// Leasable decides whether a proxy may be leased. Of several reasons against it the
// first in the order above is returned.
func Leasable(p *Proxy, f Freshness) (bool, Reason) {
	switch {
	case p.Deleting:
		return false, ReasonDeleting
	case p.MaxLeases <= 0:
		return false, ReasonLeasingDisabled
	case p.Phase == v1alpha1.PhaseUnhealthy:
		return false, ReasonUnhealthy
	case p.Phase != v1alpha1.PhaseReady:
		return false, ReasonNotReady
	case p.ObservedGeneration != p.Generation:
		return false, ReasonStatusOutdated
	case p.Host == "" || p.Port <= 0 || p.Port > maxPort:
		return false, ReasonNoAddress
	case !f.Fresh(p.ProxyUID):
		return false, ReasonVerdictStale
	}
	return true, ReasonNone
}

// Explain is a sentence about the Reason that Leasable returned for p.
func Explain(p *Proxy, f Freshness, r Reason) string {
	switch r {
	case ReasonDeleting:
		return "the Proxy is being deleted"
	case ReasonLeasingDisabled:
		return "spec.maxLeases is 0"
	case ReasonUnhealthy:
		return "probes through it fail" + because(p.Reason) + p.source()
	case ReasonNotReady:
		switch {
		case p.Reason == reasonUnreadable:
			return "its object does not fit this version's types; discovery's log has the error"
		case p.Phase == "":
			return "it has no status yet"
		case p.VerdictAhead:
			return "its verdict is Unknown" + because(p.Reason) + p.source()
		}
		return fmt.Sprintf("its phase is %s%s", p.Phase, because(p.Reason))
	case ReasonStatusOutdated:
		return fmt.Sprintf("its status is of generation %d, and its spec of generation %d", p.ObservedGeneration, p.Generation)
	case ReasonNoAddress:
		return "its status has no host and port"
	case ReasonVerdictStale:
		return f.Explain(p.ProxyUID)
	}
	return ""
}

// source names the object with the reason, when that is not the Proxy.
func (p *Proxy) source() string {
	if !p.VerdictAhead {
		return ""
	}
	return ", by its ProxyProbe; the hooks have not updated its status yet"
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}
