package prober

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/schedule"
)

func TestNewProxyIsProbedAtOnceThenAtTheInterval(t *testing.T) {
	r := newRig(t, 8)
	require.NoError(t, r.runner.Add(proxyProbeOf("a")))
	j := r.one()
	assert.Equal(t, "192.0.2.1", j.spec.host)
	assert.Equal(t, int32(3128), j.spec.port)
	r.step(time.Second)
	r.runner.finish(j, good(time.Second))

	r.step(21 * time.Second)
	r.none()
	r.step(500 * time.Millisecond) // 30 s less the spread of 7.5 s
	r.runner.finish(r.one(), good(time.Second))
	for range 3 {
		r.step(30*time.Second - time.Millisecond)
		r.none()
		r.step(time.Millisecond)
		r.runner.finish(r.one(), good(time.Second))
	}
}

func TestSeededVerdictIsKeptAndProbedAtARandomPhase(t *testing.T) {
	for _, v := range []v1alpha1.Verdict{healthy, unhealthy} {
		r := newRig(t, 8)
		p := judged("a", v)
		require.NoError(t, r.runner.Add(p))
		assert.Equal(t, v, r.verdict(p))
		r.none()
		r.nothingToWrite(p)
		r.step(15 * time.Second) // half the interval, by the rig's jitter
		j := r.one()

		r.runner.finish(j, bad(probe.ReasonDialFailed))
		assert.Equal(t, v, r.verdict(p), "a flip needs a full run after a restart as well")
		r.nothingToWrite(p)
	}
}

func TestVerdictOfAnotherInstanceIsIgnored(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	p.Status.InstanceID = "instance-0"
	require.NoError(t, r.runner.Add(p))
	r.one()
	assert.Empty(t, r.verdict(p))
}

func TestOwnStatusWriteChangesNothing(t *testing.T) {
	r := newRig(t, 8)
	p := proxyProbeOf("a")
	require.NoError(t, r.runner.Add(p))
	r.round(good(time.Millisecond))
	r.step(-20 * time.Second)
	seen := p.DeepCopy()
	seen.ResourceVersion, seen.Status = "2", r.write(p).status
	require.NoError(t, r.runner.Update(seen))
	r.none()
	assert.Equal(t, healthy, r.verdict(p))
	r.nothingToWrite(p)
}

func TestBusyWorkersLeaveTheRestDue(t *testing.T) {
	r := newRig(t, 2)
	for _, name := range []string{"a", "b", "c", "d"} {
		require.NoError(t, r.runner.Add(proxyProbeOf(name)))
	}
	first := r.handed()
	require.Len(t, first, 2)
	r.step(time.Second)
	r.none()
	r.runner.finish(first[0], good(time.Millisecond))
	second := r.one()
	assert.NotEqual(t, first[0].key, second.key, "the proxy that waited longest")
	r.runner.finish(first[1], good(time.Millisecond))
	r.runner.finish(second, good(time.Millisecond))
	assert.Len(t, r.handed(), 1)
}

func TestProbeSlowerThanItsIntervalIsFollowedAtOnce(t *testing.T) {
	r := newRig(t, 8)
	require.NoError(t, r.runner.Add(proxyProbeOf("a")))
	j := r.one()
	r.step(2 * time.Minute)
	r.none()
	r.runner.finish(j, bad(probe.ReasonConnectTimeout))
	r.one()
	r.none()
}

func TestTheSchedulerSleepsUntilSomethingIsDue(t *testing.T) {
	r := newRig(t, 1)
	ctx := context.Background()
	assert.Equal(t, tick, r.runner.dispatch(ctx))
	p := judged("a", healthy)
	require.NoError(t, r.runner.Add(p)) // due in 15 s
	r.step(14*time.Second + 600*time.Millisecond)
	assert.Equal(t, 400*time.Millisecond, r.runner.dispatch(ctx))
	r.step(400 * time.Millisecond)
	assert.Equal(t, tick, r.runner.dispatch(ctx), "the worker is busy: finish wakes the scheduler")
	r.runner.finish(<-r.runner.jobs, good(time.Millisecond))
	assert.Len(t, r.runner.wake, 1)
}

func TestAliveRequiresASyncedWatchAndARunningScheduler(t *testing.T) {
	r := newRig(t, 1)
	assert.ErrorContains(t, r.runner.alive(), "not been listed")
	require.NoError(t, r.runner.Replace(nil, "1"))
	assert.ErrorContains(t, r.runner.alive(), "scheduler")
	r.none()
	require.NoError(t, r.runner.alive())
	r.clock.Step(frozenAfter)
	require.NoError(t, r.runner.alive())
	r.clock.Step(time.Second)
	assert.ErrorContains(t, r.runner.alive(), "scheduler")
}

// running runs the rig's runner until stop is called.
func running(t *testing.T, r *rig, check checkFunc) (stop func()) {
	t.Helper()
	r.runner.check = check
	r.runner.enqueue = func(types.NamespacedName) {} // the rig's counts on one goroutine
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.runner.run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

func TestRunProbesOnTheClock(t *testing.T) {
	r := newRig(t, 4)
	var probes atomic.Int64
	running(t, r, func(context.Context, job) probe.Result {
		probes.Add(1)
		return good(time.Millisecond)
	})
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		require.NoError(t, r.runner.Add(proxyProbeOf(name)))
	}
	eventually(t, func() bool { return probes.Load() == 6 }, "all at once, with fewer workers")
	for n := int64(12); n <= 24; n += 6 {
		stepUntilTrue(t, r, func() bool { return probes.Load() >= n })
	}
}

// stepUntilTrue advances the clock second by second until the condition is true.
func stepUntilTrue(t *testing.T, r *rig, condition func() bool) {
	t.Helper()
	eventually(t, func() bool {
		if condition() {
			return true
		}
		if r.clock.HasWaiters() {
			r.step(time.Second)
		}
		return false
	}, "in time")
}

func TestSlowProxyOccupiesOneWorker(t *testing.T) {
	r := newRig(t, 2)
	release := make(chan struct{})
	var others atomic.Int64
	running(t, r, func(ctx context.Context, j job) probe.Result {
		if j.key.Name == "slow" {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return bad(probe.ReasonConnectTimeout)
		}
		others.Add(1)
		return good(time.Millisecond)
	})
	require.NoError(t, r.runner.Add(proxyProbeOf("slow")))
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, r.runner.Add(proxyProbeOf(name)))
	}
	stepUntilTrue(t, r, func() bool { return others.Load() >= 9 })
	close(release)
}

func TestShutdownCancelsProbes(t *testing.T) {
	r := newRig(t, 3)
	var inFlight, cut atomic.Int64
	stop := running(t, r, func(ctx context.Context, _ job) probe.Result {
		inFlight.Add(1)
		<-ctx.Done()
		cut.Add(1)
		return unsure(probe.ReasonCanceled)
	})
	for _, name := range []string{"a", "b", "c", "d"} {
		require.NoError(t, r.runner.Add(proxyProbeOf(name)))
	}
	eventually(t, func() bool { return inFlight.Load() == 3 }, "in flight")
	stop()
	// The fourth may have got the worker of a canceled probe.
	assert.Equal(t, inFlight.Load(), cut.Load())
	for _, p := range []string{"a", "b", "c", "d"} {
		r.nothingToWrite(proxyProbeOf(p))
	}
}

// hang lets the jobs take longer than schedule.SlowAfter and fail.
func (r *rig) hang(jobs []job, d time.Duration) {
	r.t.Helper()
	r.step(d)
	for _, j := range jobs {
		r.runner.finish(j, bad(probe.ReasonConnectTimeout))
	}
}

// More proxies than workers accept connections and hang until a timeout that is far
// longer than the interval.
func TestHangingProxiesDoNotStarveTheOthers(t *testing.T) {
	r := newRig(t, 8)
	for i := range 20 {
		require.NoError(t, r.runner.Add(proxyProbeOf(fmt.Sprintf("hangs-%d", i))))
	}
	for range 3 { // all have had a probe, and are known to be slow
		r.hang(r.handed(), 2*time.Minute)
	}
	fine := proxyProbeOf("fine")
	fine.Spec.HealthCheck.Interval.Duration = 2 * time.Second
	require.NoError(t, r.runner.Add(fine))

	probes := 0
	for range 60 { // two minutes in which no other probe finishes
		for _, j := range r.handed() {
			if j.key.Name == "fine" {
				r.runner.finish(j, good(time.Millisecond))
				probes++
			}
		}
		r.step(2 * time.Second)
	}

	assert.GreaterOrEqual(t, probes, 59)
	_, slow := r.runner.due.Busy()
	assert.Equal(t, 6, slow)
	assert.Equal(t, v1alpha1.VerdictHealthy, r.verdict(fine))
}

// The next probe of a slow proxy is due while its last one still runs. It must not count
// as the proxy that has waited longest.
func TestSlowProxyQueuesBehindWaitingOnes(t *testing.T) {
	r := newRig(t, 1)
	require.NoError(t, r.runner.Add(proxyProbeOf("hangs")))
	hanging := r.one()
	r.step(time.Minute)
	require.NoError(t, r.runner.Add(proxyProbeOf("fine")))
	r.hang([]job{hanging}, time.Minute)

	next := r.one()
	assert.Equal(t, "fine", next.key.Name)
	r.runner.finish(next, good(time.Millisecond))
	assert.Equal(t, "hangs", r.one().key.Name, "then the slow proxy")
}

func TestQuickProbeLeavesTheSlowLane(t *testing.T) {
	r := newRig(t, 2)
	p := proxyProbeOf("a")
	require.NoError(t, r.runner.Add(p))
	r.hang([]job{r.one()}, time.Minute)
	require.True(t, r.runner.monitors[keyOf(p)].place.Slow)
	r.runner.finish(r.one(), good(time.Millisecond))
	assert.False(t, r.runner.monitors[keyOf(p)].place.Slow)
	r.allIdle()
}

// After a restart proxies that hang must not occupy every worker again.
func TestRestartSeedsTheSlowLane(t *testing.T) {
	r := newRig(t, 8)
	for i := range 20 {
		p := judged(fmt.Sprintf("hangs-%d", i), v1alpha1.VerdictUnhealthy)
		p.Status.LatencyMillis = new(schedule.SlowAfter.Milliseconds())
		require.NoError(t, r.runner.Add(p))
	}
	r.step(time.Hour)
	assert.Len(t, r.handed(), 6)
	require.NoError(t, r.runner.Add(judged("quick", v1alpha1.VerdictHealthy)))
	r.step(time.Hour)
	assert.Equal(t, "quick", r.one().key.Name)
}

func TestFullSlowLaneDoesNotWakeTheScheduler(t *testing.T) {
	r := newRig(t, 2)
	for i := range 3 {
		require.NoError(t, r.runner.Add(proxyProbeOf(fmt.Sprint(i))))
	}
	for range 2 {
		r.hang(r.handed(), time.Minute)
	}
	require.Len(t, r.handed(), 1, "one worker of two is for quick ones")
	assert.Equal(t, tick, r.runner.dispatch(t.Context()), "overdue probes without a worker do not wake the scheduler")
}
