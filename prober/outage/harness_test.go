package outage

import (
	"fmt"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/health"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

const targetA = "a.invalid:443"

// epoch is when the clock of the tests starts.
func epoch() time.Time { return time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC) }

func keyOf(i int) Key { return Key{Namespace: "crawl", Name: fmt.Sprint(i)} }

// healthyFleet returns a machine that knows n Healthy proxies.
func healthyFleet(n int) *Machine {
	m := New(Config{DirectCheck: true, TargetHold: time.Hour, FleetShare: 0.5, FleetHold: 5 * time.Minute})
	for i := range n {
		m.SetStanding(keyOf(i), Standing{Verdict: v1alpha1.VerdictHealthy})
	}
	return m
}

// failure is a probe of a proxy that failed with a target.
func failure(i int, reason probe.Reason, started time.Time) Probe {
	return Probe{
		Key: keyOf(i), Started: started, HealthCheck: &v1alpha1.HealthCheck{}, URL: "https://a.invalid/",
		Result: probe.Result{Outcome: probe.Failure, Reason: reason, Target: targetA, Message: "connect: no"},
	}
}

// reach passes a failure to the machine that reaches the threshold.
func reach(m *Machine, p Probe, now time.Time) []Effect {
	_, first := m.Probed(p, now)
	return append(first, m.ThresholdReached(p, now)...)
}

// actions are the effects on a proxy.
func actions(effects []Effect, i int) []Action {
	var out []Action
	for _, e := range effects {
		if e.Key == keyOf(i) {
			out = append(out, e.Do)
		}
	}
	return out
}

// crowd is a fleet with its counters and verdicts, driven without I/O.
type crowd struct {
	*Machine
	now     time.Time
	hc      v1alpha1.HealthCheck
	proxies []*health.Proxy
	byKey   map[Key]*health.Proxy
	checks  probe.Result // of direct checks
	begun   []StartCheck
}

// newCrowd returns n proxies that are Healthy by the statuses of a predecessor. Direct
// checks work.
func newCrowd(n int) *crowd {
	c := &crowd{
		Machine: healthyFleet(n), now: epoch(), hc: (*v1alpha1.HealthCheck)(nil).OrDefault(),
		byKey: map[Key]*health.Proxy{}, checks: probe.Result{Outcome: probe.Success},
	}
	for i := range n {
		p := &health.Proxy{Counters: health.Counters{Verdict: v1alpha1.VerdictHealthy}, EverHealthy: true}
		c.proxies = append(c.proxies, p)
		c.byKey[keyOf(i)] = p
	}
	return c
}

// round has all proxies probed in the same second, ends the direct checks that are due,
// and advances to the next interval.
func (c *crowd) round(reason func(i int) probe.Reason) {
	for i := range c.proxies {
		c.probe(i, reason(i))
	}
	for range 10 {
		c.pass(3 * time.Second)
	}
}

// pass lets time pass without a probe.
func (c *crowd) pass(d time.Duration) {
	c.now = c.now.Add(d)
	c.apply(c.Tick(c.now))
	checks, _ := c.StartChecks(c.now)
	c.now = c.now.Add(time.Millisecond)
	for _, check := range checks {
		c.begun = append(c.begun, check)
		c.apply(c.CheckDone(check, c.checks, c.now))
	}
}

func (c *crowd) probe(i int, reason probe.Reason) {
	p := failure(i, reason, c.now)
	p.HealthCheck = &c.hc
	if reason == probe.ReasonProbeSucceeded {
		p.Result.Outcome = probe.Success
	}
	r, effects := c.Probed(p, c.now)
	c.apply(effects)
	x := c.proxies[i]
	if r.Outcome == probe.Inconclusive {
		x.CountInconclusive(health.LastProbeOf(r, 1), c.InconclusiveLimit(r.Reason, c.hc.Interval.Duration, health.InconclusiveLimit), c.now)
	} else if x.Count(r.Outcome == probe.Success, health.LastProbeOf(r, 1), &c.hc, c.now) {
		c.apply(c.ThresholdReached(p, c.now))
	}
	c.SetStanding(p.Key, c.standing(x))
}

func (c *crowd) standing(x *health.Proxy) Standing {
	s := Standing{Verdict: x.Verdict}
	if x.Verdict == v1alpha1.VerdictUnhealthy {
		s.FlippedAt = x.Since
	}
	return s
}

func (c *crowd) apply(effects []Effect) {
	for _, e := range effects {
		x := c.byKey[e.Key]
		switch e.Do {
		case AttributeToProxy:
			x.AttributeToProxy()
		case DropFailures:
			x.DropFailures()
		case Suppress:
			x.Suppress(e.Text, e.Announce)
		case Release:
			x.Release()
		case MarkUnhealthy:
			x.MarkUnhealthy(c.now)
			c.SetStanding(e.Key, c.standing(x))
		}
	}
}

// unhealthy counts the proxies of [from, to) that are Unhealthy.
func (c *crowd) unhealthy(from, to int) (n int) {
	for _, x := range c.proxies[from:to] {
		if x.Verdict == v1alpha1.VerdictUnhealthy {
			n++
		}
	}
	return n
}

func all(r probe.Reason) func(int) probe.Reason { return func(int) probe.Reason { return r } }

// first has the first n proxies end with one reason and the others with another.
func first(n int, one, other probe.Reason) func(int) probe.Reason {
	return func(i int) probe.Reason {
		if i < n {
			return one
		}
		return other
	}
}
