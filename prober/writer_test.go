package prober

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

func TestAVerdictIsWrittenOnce(t *testing.T) {
	r, api, p := newRig(t, 8), &statusAPI{}, proxyProbeOf("a")
	w, _ := withWriter(t, r, api)
	require.NoError(t, r.engine.Add(p))
	r.round(good(40 * time.Millisecond))
	eventually(t, func() bool { return len(api.of(p)) == 1 }, "written")
	assert.Equal(t, healthy, api.of(p)[0].Verdict)
	eventually(t, func() bool { return r.engine.reportedVerdict(p) == healthy }, "noted")
	r.round(good(40 * time.Millisecond))
	w.enqueue(keyOf(p))
	eventually(t, func() bool { return w.queue.Len() == 0 }, "looked at")
	assert.Equal(t, 1, api.tried())
	assert.InDelta(t, 1, testutil.ToFloat64(r.engine.metrics.writes.WithLabelValues("first_verdict", "success")), 0)
}

func (e *engine) reportedVerdict(p *v1alpha1.ProxyProbe) v1alpha1.Verdict {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.targets[keyOf(p)].reported.verdict
}

// The next probe may be an hour away: a failed write is retried by itself.
func TestAFailedWriteIsRetriedWithoutANewProbe(t *testing.T) {
	r, api, p := newRig(t, 8), &statusAPI{fail: errors.New("no API server")}, proxyProbeOf("a")
	withWriter(t, r, api)
	require.NoError(t, r.engine.Add(p))
	r.engine.finish(r.one(), good(40*time.Millisecond))
	eventually(t, func() bool { return api.tried() == 1 }, "tried")
	for n, wait := 2, firstRetry; n < 5; n, wait = n+1, 2*wait {
		eventually(t, r.clock.HasWaiters, "waits for the next try")
		r.step(wait - 100*time.Millisecond)
		assert.Equal(t, n-1, api.tried(), "backs off for %s", wait)
		stepUntil(t, r, func() bool { return api.tried() == n })
	}
	api.set(nil, nil)
	stepUntil(t, r, func() bool { return len(api.of(p)) == 1 })
	assert.Equal(t, healthy, api.of(p)[0].Verdict)
	assert.Positive(t, testutil.ToFloat64(r.engine.metrics.writes.WithLabelValues("first_verdict", "failure")))
}

// stepUntil moves the clock on until the condition holds, as far as a retry may be
// away.
func stepUntil(t *testing.T, r *rig, condition func() bool) {
	t.Helper()
	limit := r.clock.Now().Add(2 * lastRetry)
	eventually(t, func() bool {
		if condition() {
			return true
		}
		if r.clock.Now().Before(limit) {
			r.step(50 * time.Millisecond)
		}
		return false
	}, "in time")
}

func TestWhatIsGoneIsNotRetried(t *testing.T) {
	r, api, p := newRig(t, 8), &statusAPI{fail: errors.New("not found")}, proxyProbeOf("a")
	w, _ := withWriter(t, r, api)
	require.NoError(t, r.engine.Add(p))
	r.engine.finish(r.one(), good(40*time.Millisecond))
	eventually(t, func() bool { return api.tried() == 1 && w.queue.NumRequeues(keyOf(p)) == 1 }, "tried and put back")
	require.NoError(t, r.engine.Delete(p))
	stepUntil(t, r, func() bool { return w.queue.NumRequeues(keyOf(p)) == 0 })
	assert.Equal(t, 1, api.tried())
}

func TestAStalledAPIServerHoldsUpNoProbes(t *testing.T) {
	r, api := newRig(t, 1), &statusAPI{}
	release := make(chan struct{})
	api.set(nil, release)
	withWriter(t, r, api)
	fleet := []*v1alpha1.ProxyProbe{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		fleet = append(fleet, proxyProbeOf(name))
		require.NoError(t, r.engine.Add(fleet[len(fleet)-1]))
	}
	for range 3 {
		for range fleet {
			r.engine.finish(r.one(), good(40*time.Millisecond))
		}
		r.step(30 * time.Second)
	}
	close(release)
	for _, p := range fleet {
		eventually(t, func() bool { return len(api.of(p)) == 1 }, "written once")
	}
}

// What is known at the end is written if the API server takes it, and the end does
// not wait for one that does not.
func TestTheEndWritesWhatIsKnown(t *testing.T) {
	r, api := newRig(t, 8), &statusAPI{}
	release := make(chan struct{})
	api.set(nil, release)
	w, stop := withWriter(t, r, api)
	fleet := []string{"a", "b", "c", "d", "e", "f"}
	for _, name := range fleet {
		require.NoError(t, r.engine.Add(proxyProbeOf(name)))
	}
	for _, j := range r.handed() {
		r.engine.finish(j, good(time.Millisecond))
	}
	eventually(t, func() bool { return api.tried() == writers }, "every writer is at work")
	time.AfterFunc(10*time.Millisecond, func() { close(release) })
	stop()
	for _, name := range fleet {
		assert.Len(t, api.of(proxyProbeOf(name)), 1, name)
	}
	<-w.drained
}

func TestOnlyTheHolderOfTheLeaseWrites(t *testing.T) {
	r, api, p := newRig(t, 8), &statusAPI{}, proxyProbeOf("a")
	w, _ := withWriter(t, r, api)
	var holds atomic.Bool
	w.mayWrite = holds.Load
	require.NoError(t, r.engine.Add(p))
	r.engine.finish(r.one(), good(time.Millisecond))
	eventually(t, func() bool { return w.queue.NumRequeues(keyOf(p)) == 1 }, "put back")
	assert.Zero(t, api.tried())
	holds.Store(true)
	r.engine.takeOver()
	eventually(t, func() bool { return len(api.of(p)) == 1 }, "written as soon as the lease is back, without a wait for the retry")
}

func TestTheEndDoesNotWaitForAnAPIServerThatHangs(t *testing.T) {
	r, api := newRig(t, 8), &statusAPI{}
	api.set(nil, make(chan struct{})) // for ever
	w, stop := withWriter(t, r, api)
	w.drain = 10 * time.Millisecond
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		require.NoError(t, r.engine.Add(proxyProbeOf(name)))
	}
	for _, j := range r.handed() {
		r.engine.finish(j, bad(probe.ReasonDialFailed))
	}
	for _, p := range []string{"a", "b", "c", "d", "e", "f"} {
		key := keyOf(proxyProbeOf(p))
		r.engine.mu.Lock()
		r.engine.targets[key].tally.verdict = unhealthy
		r.engine.mu.Unlock()
		w.enqueue(key)
	}
	eventually(t, func() bool { return api.tried() == writers }, "every writer is at work")
	stop()
	assert.Equal(t, writers, api.tried(), "what was queued is left to the next process")
	w.enqueue(keyOf(proxyProbeOf("a"))) // accepted and ignored
}

func TestLogsOfFailedWritesNameTheProxy(t *testing.T) {
	var out programtest.Output
	r, api, p := newRig(t, 8), &statusAPI{fail: errors.New("boom")}, proxyProbeOf("a")
	w, _ := withWriter(t, r, api)
	w.log = slog.New(slog.NewTextHandler(&out, nil))
	require.NoError(t, r.engine.Add(p))
	r.engine.finish(r.one(), good(40*time.Millisecond))
	eventually(t, func() bool { return out.String() != "" }, "logged")
	assert.Contains(t, out.String(), "proxy=a namespace=crawl verdict=Healthy err=boom")
}
