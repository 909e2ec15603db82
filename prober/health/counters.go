package health

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

const (
	firstInconclusiveLimit = 3 // the number of consecutive inconclusive probes after which an instance without a verdict is reported as Unknown
	// InconclusiveLimit is the number of them that turn a verdict to Unknown. They are
	// counted, not timed, so that a clock jump invalidates no verdict.
	InconclusiveLimit = 10
)

// Counters count the probes of one instance towards a verdict. The zero value has
// neither.
type Counters struct {
	Verdict       v1alpha1.Verdict // "" before the first
	Since         time.Time        // when Verdict last changed
	Successes     int32            // consecutive
	Failures      int32            // consecutive
	ProxyFailures int32            // the Failures that no outage of a probe target or network can explain
	Inconclusive  int32            // consecutive, since the last success or failure
}

// Decided reports whether v is Healthy or Unhealthy.
func Decided(v v1alpha1.Verdict) bool {
	return v == v1alpha1.VerdictHealthy || v == v1alpha1.VerdictUnhealthy
}

// count counts a success or a failure. The verdict stays.
func (c *Counters) count(success bool) {
	c.Inconclusive = 0
	if success {
		c.Successes, c.Failures, c.ProxyFailures = c.Successes+1, 0, 0
	} else {
		c.Successes, c.Failures = 0, c.Failures+1
	}
}

// recovered turns the verdict to Healthy once the successes reach the threshold.
func (c *Counters) recovered(hc *v1alpha1.HealthCheck, at time.Time) {
	if c.Successes >= hc.SuccessThreshold {
		c.flip(v1alpha1.VerdictHealthy, at)
	}
}

// failed reports whether the failures reach the threshold, whatever the verdict is.
func (c *Counters) failed(hc *v1alpha1.HealthCheck) bool { return c.Failures >= hc.FailureThreshold }

// countInconclusive counts a probe that shows nothing about the proxy. At the limit
// the verdict turns to Unknown. Inconclusive probes do not interrupt a run of
// failures.
func (c *Counters) countInconclusive(limit int32, at time.Time) {
	c.Inconclusive++
	if !Decided(c.Verdict) {
		limit = firstInconclusiveLimit
	}
	if c.Inconclusive >= limit {
		c.Failures, c.ProxyFailures, c.Successes = 0, 0, 0
		c.flip(v1alpha1.VerdictUnknown, at)
	}
}

func (c *Counters) flip(to v1alpha1.Verdict, at time.Time) {
	if c.Verdict != to {
		c.Verdict, c.Since = to, at
	}
}

// agrees reports whether a success or a failure supports the verdict.
func agrees(v v1alpha1.Verdict, success bool) bool {
	return Decided(v) && success == (v == v1alpha1.VerdictHealthy)
}
