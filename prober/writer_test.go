package prober

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/testwait"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

func TestVerdictIsWrittenOnce(t *testing.T) {
	r, api, p := newRig(t, 8), &statusAPI{}, proxyProbeOf("a")
	w, _ := withWriter(t, r, api)
	require.NoError(t, r.runner.Add(p))
	r.round(good(40 * time.Millisecond))
	eventually(t, func() bool { return len(api.of(p)) == 1 }, "written")
	assert.Equal(t, healthy, api.of(p)[0].Verdict)
	eventually(t, func() bool { return r.runner.reportedVerdict(p) == healthy }, "noted")
	r.round(good(40 * time.Millisecond))
	w.queue.Add(keyOf(p))
	eventually(t, func() bool { return w.queue.Len() == 0 }, "processed")
	assert.Equal(t, 1, api.tried())
	assert.InDelta(t, 1, testutil.ToFloat64(r.runner.metrics.writes.WithLabelValues("first_verdict", "success")), 0)
}

func (r *runner) reportedVerdict(p *v1alpha1.ProxyProbe) v1alpha1.Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.monitors[keyOf(p)].health.LastWritten().Verdict
}

// The next probe may be an hour away, so a failed write is retried with backoff.
func TestFailedWriteIsRetriedWithBackoff(t *testing.T) {
	r, api, p := newRig(t, 8), &statusAPI{fail: errors.New("no API server")}, proxyProbeOf("a")
	withWriter(t, r, api)
	require.NoError(t, r.runner.Add(p))
	r.runner.finish(r.one(), good(40*time.Millisecond))
	eventually(t, func() bool { return api.tried() == 1 }, "tried")
	for n, wait := 2, minBackoff; n < 5; n, wait = n+1, 2*wait {
		eventually(t, r.clock.HasWaiters, "waits for the next try")
		r.step(wait - 100*time.Millisecond)
		assert.Equal(t, n-1, api.tried(), "backs off for %s", wait)
		stepUntil(t, r, func() bool { return api.tried() == n })
	}
	api.set(nil, nil)
	stepUntil(t, r, func() bool { return len(api.of(p)) == 1 })
	assert.Equal(t, healthy, api.of(p)[0].Verdict)
	assert.Positive(t, testutil.ToFloat64(r.runner.metrics.writes.WithLabelValues("first_verdict", "failure")))
}

// stepUntil advances the clock until the condition is true, at most past the longest
// backoff.
func stepUntil(t *testing.T, r *rig, condition func() bool) {
	t.Helper()
	limit := r.clock.Now().Add(2 * maxBackoff)
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

func TestWriteOfADeletedProxyIsNotRetried(t *testing.T) {
	r, api, p := newRig(t, 8), &statusAPI{fail: errors.New("not found")}, proxyProbeOf("a")
	w, _ := withWriter(t, r, api)
	require.NoError(t, r.runner.Add(p))
	r.runner.finish(r.one(), good(40*time.Millisecond))
	eventually(t, func() bool { return api.tried() == 1 && w.queue.NumRequeues(keyOf(p)) == 1 }, "tried and requeued")
	require.NoError(t, r.runner.Delete(p))
	stepUntil(t, r, func() bool { return w.queue.NumRequeues(keyOf(p)) == 0 })
	assert.Equal(t, 1, api.tried())
}

func TestStalledAPIServerDoesNotBlockProbes(t *testing.T) {
	r, api := newRig(t, 1), &statusAPI{}
	release := make(chan struct{})
	api.set(nil, release)
	withWriter(t, r, api)
	fleet := []*v1alpha1.ProxyProbe{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		fleet = append(fleet, proxyProbeOf(name))
		require.NoError(t, r.runner.Add(fleet[len(fleet)-1]))
	}
	for range 3 {
		for range fleet {
			r.runner.finish(r.one(), good(40*time.Millisecond))
		}
		r.step(30 * time.Second)
	}
	close(release)
	for _, p := range fleet {
		eventually(t, func() bool { return len(api.of(p)) == 1 }, "written once")
	}
}

// Pending verdicts are written at shutdown.
func TestShutdownDrainsTheWriteQueue(t *testing.T) {
	r, api := newRig(t, 8), &statusAPI{}
	release := make(chan struct{})
	api.set(nil, release)
	w, stop := withWriter(t, r, api)
	fleet := []string{"a", "b", "c", "d", "e", "f"}
	for _, name := range fleet {
		require.NoError(t, r.runner.Add(proxyProbeOf(name)))
	}
	for _, j := range r.handed() {
		r.runner.finish(j, good(time.Millisecond))
	}
	eventually(t, func() bool { return api.tried() == writers }, "every writer is at work")
	time.AfterFunc(10*time.Millisecond, func() { close(release) })
	stop()
	for _, name := range fleet {
		assert.Len(t, api.of(proxyProbeOf(name)), 1, name)
	}
	<-w.drained
}

func TestOnlyTheLeaseHolderWrites(t *testing.T) {
	r, api, p := newRig(t, 8), &statusAPI{}, proxyProbeOf("a")
	w, _ := withWriter(t, r, api)
	var holds atomic.Bool
	w.mayWrite = holds.Load
	require.NoError(t, r.runner.Add(p))
	r.runner.finish(r.one(), good(time.Millisecond))
	eventually(t, func() bool { return w.queue.NumRequeues(keyOf(p)) == 1 }, "requeued")
	assert.Zero(t, api.tried())
	holds.Store(true)
	r.runner.takeOver()
	eventually(t, func() bool { return len(api.of(p)) == 1 }, "written as soon as the lease is back, without a wait for the retry")
}

func TestShutdownDrainTimesOut(t *testing.T) {
	r, api := newRig(t, 8), &statusAPI{}
	api.set(nil, make(chan struct{})) // for ever
	w, stop := withWriter(t, r, api)
	w.drain = 10 * time.Millisecond
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		require.NoError(t, r.runner.Add(proxyProbeOf(name)))
	}
	for _, j := range r.handed() {
		r.runner.finish(j, bad(probe.ReasonDialFailed))
	}
	for _, p := range []string{"a", "b", "c", "d", "e", "f"} {
		key := keyOf(proxyProbeOf(p))
		r.runner.mu.Lock()
		r.runner.monitors[key].health.Verdict = unhealthy
		r.runner.mu.Unlock()
		w.queue.Add(key)
	}
	eventually(t, func() bool { return api.tried() == writers }, "every writer is at work")
	stop()
	assert.Equal(t, writers, api.tried(), "the rest of the queue is left to the next process")
	w.queue.Add(keyOf(proxyProbeOf("a"))) // accepted and ignored
}

func TestLogsOfFailedWritesNameTheProxy(t *testing.T) {
	var out programtest.Output
	r, api, p := newRig(t, 8), &statusAPI{fail: errors.New("boom")}, proxyProbeOf("a")
	w, _ := withWriter(t, r, api)
	w.log = slog.New(slog.NewTextHandler(&out, nil))
	require.NoError(t, r.runner.Add(p))
	r.runner.finish(r.one(), good(40*time.Millisecond))
	eventually(t, func() bool { return out.String() != "" }, "logged")
	assert.Contains(t, out.String(), "proxy=a namespace=crawl verdict=Healthy err=boom")
}

// statusAPI is a fake API server.
type statusAPI struct {
	mu     sync.Mutex
	fail   error
	block  chan struct{} // when set, writes wait for it or for their context
	tries  int
	stored map[types.NamespacedName][]v1alpha1.ProxyProbeStatus
}

func (a *statusAPI) PatchStatus(ctx context.Context, key types.NamespacedName, _ types.UID, st v1alpha1.ProxyProbeStatus) (string, error) {
	a.mu.Lock()
	a.tries++
	block, fail := a.block, a.fail
	a.mu.Unlock()
	if block != nil {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-block:
		}
	}
	if fail != nil {
		return "", fail
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stored == nil {
		a.stored = map[types.NamespacedName][]v1alpha1.ProxyProbeStatus{}
	}
	a.stored[key] = append(a.stored[key], st)
	return "", nil
}

func (a *statusAPI) set(fail error, block chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fail, a.block = fail, block
}

func (a *statusAPI) tried() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tries
}

func (a *statusAPI) of(p *v1alpha1.ProxyProbe) []v1alpha1.ProxyProbeStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stored[keyOf(p)]
}

// withWriter runs a writer beside the rig until the test ends.
func withWriter(t *testing.T, r *rig, api statusPatcher) (w *writer, stop func()) {
	t.Helper()
	queue := newWriteQueue(r.clock)
	w = newWriter(api, r.runner, queue, func() bool { return true }, r.runner.metrics, quiet())
	r.runner.enqueue = queue.Add
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return w, stop
}

func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	testwait.Eventually(t, what, condition)
}
