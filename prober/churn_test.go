package prober

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// churn is a fleet that changes at random, with its own idea of what must hold.
type churn struct {
	*rig
	random   *rand.Rand
	live     map[types.NamespacedName]*v1alpha1.ProxyProbe
	inFlight map[types.UID]job
	serial   int
}

// Whatever happens to the fleet, nothing is probed twice at once, forgotten, or
// left behind in schedule and metrics, and no more is in flight than there are
// workers.
func TestChurnProperty(t *testing.T) {
	for seed := range uint64(8) {
		c := &churn{
			rig:      newRig(t, 5),
			random:   rand.New(rand.NewPCG(seed, 2)),
			live:     map[types.NamespacedName]*v1alpha1.ProxyProbe{},
			inFlight: map[types.UID]job{},
		}
		for range 1000 {
			c.change()
			c.dispatch()
			c.check()
		}
		c.drain()
	}
}

func (c *churn) change() {
	name := fmt.Sprint(c.random.IntN(12))
	key := types.NamespacedName{Namespace: "crawl", Name: name}
	p, exists := c.live[key]
	switch c.random.IntN(8) {
	case 0:
		c.create(key)
	case 1:
		if exists {
			require.NoError(c.t, c.engine.Delete(p))
			delete(c.live, key)
		}
	case 2:
		if exists {
			p = p.DeepCopy()
			p.Spec.InstanceID = fmt.Sprintf("instance-%d", c.random.IntN(3))
			c.update(p)
		}
	case 3:
		if exists {
			p = p.DeepCopy()
			p.Spec.HealthCheck.Interval = metav1.Duration{Duration: time.Duration(1+c.random.IntN(60)) * time.Second}
			c.update(p)
		}
	case 4, 5:
		c.finishSome()
	default:
		c.step(time.Duration(c.random.IntN(20_000)) * time.Millisecond)
	}
}

func (c *churn) create(key types.NamespacedName) {
	c.serial++
	p := proxyProbeOf(key.Name)
	if c.random.IntN(2) == 0 {
		p = judged(key.Name, healthy)
	}
	p.UID = types.UID(fmt.Sprint(c.serial))
	c.update(p)
}

func (c *churn) update(p *v1alpha1.ProxyProbe) {
	c.live[keyOf(p)] = p
	require.NoError(c.t, c.engine.Update(p))
}

func (c *churn) finishSome() {
	for uid, j := range c.inFlight {
		delete(c.inFlight, uid)
		switch {
		case j.ctx.Err() != nil:
			c.engine.finish(j, unsure(probe.ReasonCanceled))
		case c.random.IntN(3) == 0:
			c.engine.finish(j, bad(probe.ReasonDialFailed))
		default:
			c.engine.finish(j, good(time.Duration(c.random.IntN(900))*time.Millisecond))
		}
		if c.random.IntN(2) == 0 {
			return
		}
	}
}

func (c *churn) dispatch() {
	for _, j := range c.handed() {
		require.NotContains(c.t, c.inFlight, j.target.uid, "two probes of one proxy")
		p, ok := c.live[j.key]
		require.True(c.t, ok, "a probe of what is gone")
		require.Equal(c.t, orderOf(p), j.order, "a probe by an old order")
		c.inFlight[j.target.uid] = j
	}
}

func (c *churn) check() {
	e := c.engine
	require.LessOrEqual(c.t, len(c.inFlight), 5)
	require.Len(c.t, c.inFlight, e.due.busy)
	require.LessOrEqual(c.t, e.due.busySlow, e.due.slowMost())
	require.Len(c.t, e.targets, len(c.live))
	waiting := 0
	for key, t := range e.targets {
		require.Equal(c.t, c.live[key].UID, t.uid)
		_, probing := c.inFlight[t.uid]
		require.NotEqual(c.t, probing, t.index >= 0, "in flight or in the schedule")
		if t.index >= 0 {
			waiting++
			require.LessOrEqual(c.t, t.due.Sub(c.clock.Now()), t.order.interval(), "not forgotten")
		}
	}
	require.Equal(c.t, waiting, e.due.waiting())
}

func (c *churn) drain() {
	require.NoError(c.t, c.engine.Replace(nil, ""))
	for len(c.inFlight) > 0 {
		c.finishSome()
	}
	require.Empty(c.t, c.series(), "no series is left behind")
	require.Zero(c.t, c.engine.due.waiting())
	require.Zero(c.t, c.engine.due.busy)
}
