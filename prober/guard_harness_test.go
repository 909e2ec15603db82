package prober

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

const site443 = targetName + ":443"

// control is the direct check of a rig's guard: the test says how it comes out.
type control struct {
	*rig
	up    bool
	asked []string
}

func guarded(t *testing.T, cfg GuardConfig) *control {
	t.Helper()
	c := &control{rig: newRig(t, 1000), up: true}
	c.engine.guard.cfg = cfg
	c.engine.guard.check = func(_ context.Context, hc v1alpha1.HealthCheck) probe.Result {
		c.asked = append(c.asked, hc.ProbeURL)
		if c.up {
			return good(time.Millisecond)
		}
		return bad(probe.ReasonDialFailed)
	}
	return c
}

func usual() GuardConfig {
	return GuardConfig{DirectCheck: true, TargetHold: 30 * time.Minute, FleetShare: 0.5, FleetHold: 5 * time.Minute}
}

// fleet adds n Healthy proxies. All are due by the next round.
func (c *control) fleet(n int) []*v1alpha1.ProxyProbe {
	c.t.Helper()
	out := make([]*v1alpha1.ProxyProbe, n)
	for i := range out {
		out[i] = judged(fmt.Sprint("p", i), healthy)
		require.NoError(c.t, c.engine.Add(out[i]))
	}
	c.step(30 * time.Second)
	return out
}

// all probes everything that is due with the same result, makes the direct checks
// that are wanted, and moves on to the next interval.
func (c *control) all(r probe.Result) {
	c.t.Helper()
	c.each(func(string) probe.Result { return r })
}

func (c *control) each(result func(name string) probe.Result) {
	c.t.Helper()
	for _, j := range c.handed() {
		c.engine.finish(j, result(j.key.Name))
		c.step(time.Millisecond)
	}
	for range 10 {
		c.checks()
		c.step(3 * time.Second)
	}
}

// checks makes the direct checks that are due.
func (c *control) checks() {
	var g errgroup.Group
	c.engine.checkTargets(context.Background(), &g)
	require.NoError(c.t, g.Wait())
}

func (c *control) count(v v1alpha1.Verdict) int { return c.engine.verdicts()[v] }

func (c *control) down(cause string) float64 {
	return testutil.ToFloat64(c.engine.metrics.targetDown.WithLabelValues(cause))
}

// writes takes all that is to be written as written and returns it by occasion.
func (c *control) writes(fleet []*v1alpha1.ProxyProbe) map[occasion][]v1alpha1.ProxyProbeStatus {
	out := map[occasion][]v1alpha1.ProxyProbeStatus{}
	for _, p := range fleet {
		if rep, ok := c.engine.report(keyOf(p)); ok {
			c.engine.written(rep, "")
			out[rep.occasion] = append(out[rep.occasion], rep.status)
		}
	}
	return out
}

func works() probe.Result {
	r := good(40 * time.Millisecond)
	r.Target = site443
	return r
}

// fails is a failure with a target behind it.
func fails(reason probe.Reason) probe.Result {
	r := bad(reason)
	r.Target = site443
	return r
}
