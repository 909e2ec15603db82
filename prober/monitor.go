package prober

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/health"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/outage"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/schedule"
)

// A proxy is tested for being open with its first success, then after
// openTestIntervals intervals, and not more often than minOpenTestInterval. One that
// was found open is tested with every probe.
const (
	openTestIntervals   = 10
	minOpenTestInterval = 5 * time.Minute
)

// monitor is all that the prober keeps of one ProxyProbe. The runner's lock guards it.
type monitor struct {
	key   types.NamespacedName
	uid   types.UID
	spec  spec
	epoch int // counts the instances. Results of another epoch are about another instance

	health health.Proxy
	plans  plans
	place  schedule.Item[*monitor]
	cancel context.CancelFunc // of the probe in flight, nil without one
	series series
}

// restart begins afresh on another instance.
func (m *monitor) restart(s spec, now time.Time) {
	m.epoch++
	m.spec, m.health, m.plans = s, health.Proxy{}, plans{}
	m.place.Reset(now)
	if m.cancel != nil {
		m.cancel()
	}
}

// edit takes over a spec of the same instance. Verdict and counters stay.
func (m *monitor) edit(s spec, now time.Time) {
	if s.interval() != m.spec.interval() {
		m.place.SetInterval(now, s.interval())
	}
	m.spec = s
}

// standing is what the outage rules need to know.
func (m *monitor) standing() outage.Standing {
	s := outage.Standing{Verdict: m.health.Verdict}
	if s.Verdict == v1alpha1.VerdictUnhealthy && m.health.EverHealthy {
		s.FlippedAt = m.health.Since
	}
	return s
}

// plan is what differs from one probe of a proxy to the next.
type plan struct {
	url      string
	testOpen bool
}

// plans is what the next plan depends on. A new instance starts with the zero value.
type plans struct {
	turn       uint32 // probes so far: selects the next probe URL
	url        string // of the newest probe
	openTested time.Time
	open       bool // at the last test
}

// nextPlan plans the probe that starts now.
func (m *monitor) nextPlan(now time.Time) plan {
	p, hc := &m.plans, &m.spec.healthCheck
	p.url = hc.ProbeURL
	if urls := hc.ProbeURLs; len(urls) > 0 {
		p.url = string(urls[(m.offset()+p.turn)%uint32(len(urls))])
	}
	p.turn++
	return plan{url: p.url, testOpen: m.openTestDue(now)}
}

// offset differs between proxies, so that proxies created together do not all request
// the same URL at the same time (FNV-1a of the UID, which allocates nothing).
func (m *monitor) offset() uint32 {
	h := uint32(2166136261)
	for i := range len(m.uid) {
		h = (h ^ uint32(m.uid[i])) * 16777619
	}
	return h
}

func (m *monitor) openTestDue(now time.Time) bool {
	if !m.spec.healthCheck.OpenProxyTest || m.spec.secret == "" {
		return false
	}
	return m.plans.open || now.Sub(m.plans.openTested) >= max(openTestIntervals*m.spec.interval(), minOpenTestInterval)
}

// spec is the part of a ProxyProbe's spec that the prober keeps.
type spec struct {
	generation  int64
	instanceID  string
	host        string
	port        int32
	scheme      v1alpha1.Scheme
	healthCheck v1alpha1.HealthCheck // every field set
	secret      string               // name of the Secret with credentials, "" for none
}

func specOf(p *v1alpha1.ProxyProbe) spec {
	s := spec{
		generation:  p.Generation,
		instanceID:  p.Spec.InstanceID,
		host:        p.Spec.Host,
		port:        p.Spec.Port,
		scheme:      p.Spec.Scheme,
		healthCheck: withinBounds(p.Spec.HealthCheck.OrDefault()),
	}
	if ref := p.Spec.CredentialsRef; ref != nil {
		s.secret = ref.Name
	}
	return s
}

// Bounds of a health check in the CRD.
const (
	minInterval  = time.Second
	minTimeout   = 100 * time.Millisecond
	minThreshold = 1
)

// withinBounds enforces the bounds of the CRD, in case that another version of it is
// installed: no proxy is probed without a pause, and no verdict flips without a probe.
func withinBounds(hc v1alpha1.HealthCheck) v1alpha1.HealthCheck {
	hc.Interval.Duration = max(hc.Interval.Duration, minInterval)
	hc.Timeout.Duration = max(hc.Timeout.Duration, minTimeout)
	hc.FailureThreshold = max(hc.FailureThreshold, minThreshold)
	hc.SuccessThreshold = max(hc.SuccessThreshold, minThreshold)
	return hc
}

// sameInstance reports whether verdicts on s are valid for other.
func (s *spec) sameInstance(other *spec) bool {
	return s.instanceID == other.instanceID && s.host == other.host && s.port == other.port && s.scheme == other.scheme
}

func (s *spec) interval() time.Duration { return s.healthCheck.Interval.Duration }
