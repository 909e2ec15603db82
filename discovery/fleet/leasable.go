package fleet

import (
	"fmt"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// Reason says why a proxy must not be leased, as far as the fleet can tell;
// whether it has room and does not cool for a target, the lease store knows.
type Reason string

const (
	// ReasonNone: it may be leased.
	ReasonNone Reason = ""
	// ReasonDeleting: the Proxy is being deleted.
	ReasonDeleting Reason = "Deleting"
	// ReasonLeasingDisabled: spec.maxLeases is 0.
	ReasonLeasingDisabled Reason = "LeasingDisabled"
	// ReasonUnhealthy: probes through it fail.
	ReasonUnhealthy Reason = "Unhealthy"
	// ReasonNotReady: no instance is running, or no verdict is in.
	ReasonNotReady Reason = "NotReady"
	// ReasonStatusOutdated: the spec was edited and the status does not
	// reflect it yet, so that the instance may be about to go.
	ReasonStatusOutdated Reason = "StatusOutdated"
	// ReasonNoAddress: the status names no host or port.
	ReasonNoAddress Reason = "NoAddress"
	// ReasonVerdictStale: no prober stands behind the verdict any more.
	ReasonVerdictStale Reason = "VerdictStale"
)

const maxPort = 1<<16 - 1

// Leasable decides whether a proxy may be leased, given how fresh verdicts are.
// Of several reasons against it the first in the order above is told.
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

// Explain is a sentence about a Reason that Leasable gave for p.
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
		case p.Phase == "":
			return "it has no status yet"
		case p.Ahead:
			return "the prober does not know any more whether it works" + because(p.Reason) + p.source()
		}
		return fmt.Sprintf("its phase is %s%s", p.Phase, because(p.Reason))
	case ReasonStatusOutdated:
		return fmt.Sprintf("its status is about generation %d of the spec, which is at %d", p.ObservedGeneration, p.Generation)
	case ReasonNoAddress:
		return "its status names no host and port"
	case ReasonVerdictStale:
		return f.Explain(p.ProxyUID)
	}
	return ""
}

// source says where to look, when that is not the Proxy.
func (p *Proxy) source() string {
	if !p.Ahead {
		return ""
	}
	return ": so says its ProxyProbe, and its status will when the hooks have answered"
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}
