package prober

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// order is what to probe: the part of a ProxyProbe's spec that the prober
// keeps.
type order struct {
	generation  int64
	instanceID  string
	host        string
	port        int32
	scheme      v1alpha1.Scheme
	healthCheck v1alpha1.HealthCheck // every field set
	secret      string               // name of the credentials' Secret, "" for none
}

func orderOf(p *v1alpha1.ProxyProbe) order {
	o := order{
		generation:  p.Generation,
		instanceID:  p.Spec.InstanceID,
		host:        p.Spec.Host,
		port:        p.Spec.Port,
		scheme:      p.Spec.Scheme,
		healthCheck: withinBounds(p.Spec.HealthCheck.OrDefault()),
	}
	if ref := p.Spec.CredentialsRef; ref != nil {
		o.secret = ref.Name
	}
	return o
}

// Bounds of a health check in the CRD.
const (
	minInterval  = time.Second
	minTimeout   = 100 * time.Millisecond
	minThreshold = 1
)

// withinBounds guards against what the CRD forbids, which another version of it
// may let through: proxies that are probed without a pause, or whose verdict turns
// at nothing.
func withinBounds(hc v1alpha1.HealthCheck) v1alpha1.HealthCheck {
	hc.Interval.Duration = max(hc.Interval.Duration, minInterval)
	hc.Timeout.Duration = max(hc.Timeout.Duration, minTimeout)
	hc.FailureThreshold = max(hc.FailureThreshold, minThreshold)
	hc.SuccessThreshold = max(hc.SuccessThreshold, minThreshold)
	return hc
}

// sameInstance reports whether verdicts on o still hold for other.
func (o *order) sameInstance(other *order) bool {
	return o.instanceID == other.instanceID && o.host == other.host && o.port == other.port && o.scheme == other.scheme
}

func (o *order) interval() time.Duration { return o.healthCheck.Interval.Duration }
