package prober

import (
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/health"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// fleetOf fills a rig with Healthy proxies that are spread over the interval.
func fleetOf(t *testing.T, r *rig, size int) {
	t.Helper()
	n := 0
	r.runner.jitter = func(d time.Duration) time.Duration { n++; return d * time.Duration(2*n-1) / time.Duration(2*size) }
	for i := range size {
		require.NoError(t, r.runner.Add(judged(fmt.Sprint(i), healthy)))
	}
}

// interval runs the rig for 30 s and returns the probes of each proxy and the most
// probes within one second.
func (r *rig) interval() (probes map[string]int, most int) {
	r.t.Helper()
	probes = map[string]int{}
	for second := range 31 {
		if second > 0 {
			r.step(time.Second)
		}
		jobs := r.handed()
		most = max(most, len(jobs))
		for _, j := range jobs {
			probes[j.key.Name]++
			r.runner.finish(j, good(40*time.Millisecond))
		}
	}
	return probes, most
}

// A suspended process or a clock jump in either direction causes neither a burst of
// probes nor a pause, and changes no verdict.
func TestClockJumpCausesNeitherBurstNorPause(t *testing.T) {
	for _, jump := range []time.Duration{7 * time.Second, 31 * time.Second, 10 * time.Minute, 100 * time.Hour, -7 * time.Second, -10 * time.Minute, -100 * time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			r := newRig(t, 600)
			fleetOf(t, r, 300)
			probes, most := r.interval()
			require.Len(t, probes, 300)
			require.LessOrEqual(t, most, 11)
			r.clock.Step(jump)
			probes, most = r.interval()
			require.Len(t, probes, 300, "each is probed within an interval")
			assert.LessOrEqual(t, most, 12, "spread as before")
			for name, n := range probes {
				require.Equal(t, 1, n, name)
			}
			assert.Equal(t, 300, r.runner.verdicts()[healthy])
			assert.Empty(t, r.pending, "nothing to write")
		})
	}
}

// Late probes keep their phase, and a proxy is not probed twice within a short time.
func TestLateProbesKeepTheirPhase(t *testing.T) {
	r := newRig(t, 600)
	fleetOf(t, r, 300)
	_, _ = r.interval()
	r.step(4 * time.Second) // too short for a stall
	_, most := r.interval()
	require.GreaterOrEqual(t, most, 40, "late ones at once")
	probes, most := r.interval()
	require.Len(t, probes, 300)
	assert.LessOrEqual(t, most, 12, "and back in their places one interval later")
}

// wallStep is t with another wall clock and the same monotonic reading, as after
// NTP has set the clock.
func wallStep(t time.Time, by time.Duration) time.Time {
	type layout struct {
		wall uint64 // with a monotonic reading: 1 bit, 33 bits of seconds, 30 bits of nanoseconds
		ext  int64
		loc  *time.Location
	}
	(*layout)(unsafe.Pointer(&t)).wall += uint64(by/time.Second) << 30
	return t
}

// settable is the real clock with a wall clock that can be set.
type settable struct {
	clock.RealClock
	mu     sync.Mutex
	passed time.Duration
	offset time.Duration
}

func (s *settable) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return wallStep(time.Now().Add(s.passed), s.offset)
}

func (s *settable) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

func TestWallStepChangesTheWallClockOnly(t *testing.T) {
	now := time.Now()
	for _, by := range []time.Duration{time.Hour, -time.Hour, 48 * time.Hour} {
		set := wallStep(now, by)
		require.Zero(t, set.Sub(now), "no time has passed")
		require.Equal(t, by, set.Round(0).Sub(now.Round(0)), "and the time of day is another")
	}
}

// Schedule, thresholds and writes depend on the monotonic clock only.
func TestWallClockChangeAffectsNothing(t *testing.T) {
	for _, by := range []time.Duration{-3 * time.Hour, 3 * time.Hour} {
		clk := &settable{}
		r := newRig(t, 8)
		r.runner.clock = clk
		pass := func(d time.Duration) {
			clk.passed += d
			now := clk.Now()
			r.runner.awake.Store(&now)
		}
		p := judged("a", healthy)
		require.NoError(t, r.runner.Add(p))
		pass(15 * time.Second)
		r.runner.finish(r.one(), good(40*time.Millisecond))
		clk.offset = by
		r.none()
		require.NoError(t, r.runner.Update(p))
		r.none()
		pass(29 * time.Second)
		r.none()
		pass(time.Second)
		j := r.one()
		r.runner.finish(j, bad(probe.ReasonDialFailed))
		r.none()
		assert.Equal(t, healthy, r.verdict(p), "one failure is no run")

		pass(30 * time.Second)
		r.runner.finish(r.one(), good(4*time.Second))
		rep := r.write(p)
		assert.Equal(t, health.LatencyDrift, rep.reason, "neither held back nor hurried by the other time")
		for range 3 {
			pass(30 * time.Second)
			r.runner.finish(r.one(), bad(probe.ReasonDialFailed))
		}
		rep = r.write(p)
		assert.Equal(t, health.Flip, rep.reason)
		assert.InDelta(t, by.Seconds(), time.Until(rep.status.LastTransitionTime.Time).Seconds(), 600, "what people read is the time of day")
	}
}
