package prober

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

func TestANewProxyIsProbedAtOnceThenEachInterval(t *testing.T) {
	r := newRig(t, 8)
	require.NoError(t, r.engine.Add(proxyProbeOf("a")))
	j := r.one()
	assert.Equal(t, "192.0.2.1", j.order.host)
	assert.Equal(t, int32(3128), j.order.port)
	r.step(time.Second)
	r.engine.finish(j, good(time.Second))

	r.step(21 * time.Second)
	r.none()
	r.step(500 * time.Millisecond) // 30 s less the spread of 7.5 s
	r.engine.finish(r.one(), good(time.Second))
	for range 3 {
		r.step(30*time.Second - time.Millisecond)
		r.none()
		r.step(time.Millisecond)
		r.engine.finish(r.one(), good(time.Second))
	}
}

func TestAVerdictFromBeforeIsKeptAndProbedAtARandomTime(t *testing.T) {
	for _, v := range []v1alpha1.Verdict{healthy, unhealthy} {
		r := newRig(t, 8)
		p := judged("a", v)
		require.NoError(t, r.engine.Add(p))
		assert.Equal(t, v, r.verdict(p))
		r.none()
		r.nothingToWrite(p)
		r.step(15 * time.Second) // half the interval, by the rig's jitter
		j := r.one()

		r.engine.finish(j, bad(probe.ReasonDialFailed))
		assert.Equal(t, v, r.verdict(p), "a flip needs a full run after a restart as well")
		r.nothingToWrite(p)
	}
}

func TestAVerdictOnAnotherInstanceCountsForNothing(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	p.Status.InstanceID = "instance-0"
	require.NoError(t, r.engine.Add(p))
	r.one()
	assert.Empty(t, r.verdict(p))
}

func TestOurOwnStatusWriteChangesNothing(t *testing.T) {
	r := newRig(t, 8)
	p := proxyProbeOf("a")
	require.NoError(t, r.engine.Add(p))
	r.round(good(time.Millisecond))
	r.step(-20 * time.Second)
	seen := p.DeepCopy()
	seen.ResourceVersion, seen.Status = "2", r.write(p).status
	require.NoError(t, r.engine.Update(seen))
	r.none()
	assert.Equal(t, healthy, r.verdict(p))
	r.nothingToWrite(p)
}

func TestBusyWorkersLeaveTheRestDue(t *testing.T) {
	r := newRig(t, 2)
	for _, name := range []string{"a", "b", "c", "d"} {
		require.NoError(t, r.engine.Add(proxyProbeOf(name)))
	}
	first := r.handed()
	require.Len(t, first, 2)
	r.step(time.Second)
	r.none()
	r.engine.finish(first[0], good(time.Millisecond))
	second := r.one()
	assert.NotEqual(t, first[0].key, second.key, "who waited longest")
	r.engine.finish(first[1], good(time.Millisecond))
	r.engine.finish(second, good(time.Millisecond))
	assert.Len(t, r.handed(), 1)
}

func TestAProbeSlowerThanItsIntervalIsFollowedAtOnce(t *testing.T) {
	r := newRig(t, 8)
	require.NoError(t, r.engine.Add(proxyProbeOf("a")))
	j := r.one()
	r.step(2 * time.Minute)
	r.none()
	r.engine.finish(j, bad(probe.ReasonConnectTimeout))
	r.one()
	r.none()
}

func TestTheSchedulerSleepsUntilSomethingIsDue(t *testing.T) {
	r := newRig(t, 1)
	ctx := context.Background()
	assert.Equal(t, tick, r.engine.dispatch(ctx))
	p := judged("a", healthy)
	require.NoError(t, r.engine.Add(p)) // due in 15 s
	r.step(14*time.Second + 600*time.Millisecond)
	assert.Equal(t, 400*time.Millisecond, r.engine.dispatch(ctx))
	r.step(400 * time.Millisecond)
	assert.Equal(t, tick, r.engine.dispatch(ctx), "the worker is busy: finish wakes the scheduler")
	r.engine.finish(<-r.engine.jobs, good(time.Millisecond))
	assert.Len(t, r.engine.wake, 1)
}

func TestAliveNeedsASyncedWatchAndASchedulerAtWork(t *testing.T) {
	r := newRig(t, 1)
	assert.ErrorContains(t, r.engine.alive(), "not been listed")
	require.NoError(t, r.engine.Replace(nil, "1"))
	assert.ErrorContains(t, r.engine.alive(), "scheduler")
	r.none()
	require.NoError(t, r.engine.alive())
	r.clock.Step(frozenAfter)
	require.NoError(t, r.engine.alive())
	r.clock.Step(time.Second)
	assert.ErrorContains(t, r.engine.alive(), "scheduler")
}
