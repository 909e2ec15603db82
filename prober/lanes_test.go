package prober

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

func TestSlowMost(t *testing.T) {
	for workers, want := range map[int]int{1: 1, 2: 1, 3: 2, 4: 3, 8: 6, 100: 75} {
		l := lanes{workers: workers}
		assert.Equal(t, want, l.slowMost(), "%d workers", workers)
	}
}

// hang lets the jobs take longer than slowAfter and fail.
func (r *rig) hang(jobs []job, d time.Duration) {
	r.t.Helper()
	r.step(d)
	for _, j := range jobs {
		r.engine.finish(j, bad(probe.ReasonConnectTimeout))
	}
}

// TestHangingProxiesDoNotStarveTheOthers: more proxies than workers accept
// connections and say nothing until a time-out that is far above the interval.
func TestHangingProxiesDoNotStarveTheOthers(t *testing.T) {
	r := newRig(t, 8)
	for i := range 20 {
		require.NoError(t, r.engine.Add(proxyProbeOf(fmt.Sprintf("hangs-%d", i))))
	}
	for range 3 { // all have had a probe, and are known to be slow
		r.hang(r.handed(), 2*time.Minute)
	}
	fine := proxyProbeOf("fine")
	fine.Spec.HealthCheck.Interval.Duration = 2 * time.Second
	require.NoError(t, r.engine.Add(fine))

	probes := 0
	for range 60 { // two minutes in which nobody else finishes
		for _, j := range r.handed() {
			if j.key.Name == "fine" {
				r.engine.finish(j, good(time.Millisecond))
				probes++
			}
		}
		r.step(2 * time.Second)
	}

	assert.GreaterOrEqual(t, probes, 59)
	assert.Equal(t, 6, r.engine.due.busySlow)
	assert.Equal(t, v1alpha1.VerdictHealthy, r.verdict(fine))
}

// TestASlowProxyQueuesBehindThoseThatWaited: its next probe was due while its
// last one still ran, and must not count as the one that waited longest.
func TestASlowProxyQueuesBehindThoseThatWaited(t *testing.T) {
	r := newRig(t, 1)
	require.NoError(t, r.engine.Add(proxyProbeOf("hangs")))
	hanging := r.one()
	r.step(time.Minute)
	require.NoError(t, r.engine.Add(proxyProbeOf("fine")))
	r.hang([]job{hanging}, time.Minute)

	next := r.one()
	assert.Equal(t, "fine", next.key.Name)
	r.engine.finish(next, good(time.Millisecond))
	assert.Equal(t, "hangs", r.one().key.Name, "it has its turn as well")
}

func TestAProxyThatIsQuickAgainLeavesTheSlowLane(t *testing.T) {
	r := newRig(t, 2)
	p := proxyProbeOf("a")
	require.NoError(t, r.engine.Add(p))
	r.hang([]job{r.one()}, time.Minute)
	require.True(t, r.engine.targets[keyOf(p)].slow)
	r.engine.finish(r.one(), good(time.Millisecond))
	assert.False(t, r.engine.targets[keyOf(p)].slow)
	assert.Zero(t, r.engine.due.busySlow)
}

// TestARestartKnowsWhoIsSlow: or else every proxy that hangs could hold a worker
// once more.
func TestARestartKnowsWhoIsSlow(t *testing.T) {
	r := newRig(t, 8)
	for i := range 20 {
		p := judged(fmt.Sprintf("hangs-%d", i), v1alpha1.VerdictUnhealthy)
		p.Status.LatencyMillis = new(slowAfter.Milliseconds())
		require.NoError(t, r.engine.Add(p))
	}
	r.step(time.Hour)
	assert.Len(t, r.handed(), 6)
	require.NoError(t, r.engine.Add(judged("quick", v1alpha1.VerdictHealthy)))
	r.step(time.Hour)
	assert.Equal(t, "quick", r.one().key.Name)
}

func TestAFullSlowLaneDoesNotKeepTheSchedulerAwake(t *testing.T) {
	r := newRig(t, 2)
	for i := range 3 {
		require.NoError(t, r.engine.Add(proxyProbeOf(fmt.Sprint(i))))
	}
	for range 2 {
		r.hang(r.handed(), time.Minute)
	}
	require.Len(t, r.handed(), 1, "one worker of two is for quick ones")
	assert.Equal(t, tick, r.engine.dispatch(t.Context()), "overdue ones that may not start are nothing to wake for")
}

// TestLanesAgainstAPlainSearch: whoever may have a worker and has been due for
// longest gets it, and no worker is idle while one is due that may have it.
func TestLanesAgainstAPlainSearch(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	l := lanes{workers: 5}
	in := map[*target]bool{}
	var out []*target
	for range 5_000 {
		now := epoch().Add(time.Duration(random.IntN(1000)) * time.Second)
		switch random.IntN(3) {
		case 0:
			w := waiting(random.IntN(1000))
			w.slow = random.IntN(2) == 0
			l.push(w)
			in[w] = true
		case 1:
			if len(out) > 0 {
				l.done(out[0].slow)
				out = out[1:]
			}
		case 2:
			free, slowFree := l.busy < 5, l.busySlow < 4
			got := l.next(now)
			for w := range in {
				may := free && (!w.slow || slowFree)
				require.False(t, may && got == nil && !w.due.After(now), "somebody could have had a worker")
				require.False(t, may && got != nil && w.due.Before(got.due), "somebody has waited longer")
			}
			if got != nil {
				require.True(t, in[got])
				delete(in, got)
				out = append(out, got)
			}
		}
		require.Equal(t, len(out), l.busy)
		require.LessOrEqual(t, l.busySlow, 4)
		require.Equal(t, len(in), l.waiting())
		require.GreaterOrEqual(t, l.wait(now, time.Hour), time.Duration(0))
	}
}
