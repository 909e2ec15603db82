package prober

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

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
	r, api := newRig(t, 2*writers), &statusAPI{}
	release := make(chan struct{})
	api.set(nil, release)
	w, stop := withWriter(t, r, api)
	fleet := moreThanWriters()
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
	r, api := newRig(t, 2*writers), &statusAPI{}
	api.set(nil, make(chan struct{})) // for ever
	w, stop := withWriter(t, r, api)
	w.drain = 10 * time.Millisecond
	for _, name := range moreThanWriters() {
		require.NoError(t, r.runner.Add(proxyProbeOf(name)))
	}
	for _, j := range r.handed() {
		r.runner.finish(j, bad(probe.ReasonDialFailed))
	}
	for _, p := range moreThanWriters() {
		key := keyOf(proxyProbeOf(p))
		r.runner.mu.Lock()
		r.runner.monitors[key].health.Verdict = unhealthy
		r.runner.mu.Unlock()
		w.queue.Add(key)
	}
	eventually(t, func() bool { return api.tried() == writers }, "every writer is at work")
	stop()
	assert.Equal(t, writers, api.tried(), "the rest of the queue is left to the next process")
	w.queue.Add(keyOf(proxyProbeOf("p0"))) // accepted and ignored
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

// moreThanWriters are names of more proxies than are written at once.
func moreThanWriters() []string {
	var names []string
	for i := range writers + 2 {
		names = append(names, fmt.Sprint("p", i))
	}
	return names
}

// BenchmarkTenThousandFlips measures how long ten thousand flips that are known at once
// take until a watch, as discovery has one, has seen them all. The API server is real.
func BenchmarkTenThousandFlips(b *testing.B) {
	const fleet = 10_000
	c := newCluster(b)
	clients, err := newClients(c.config)
	require.NoError(b, err)
	m, queue := newMetrics(prometheus.NewRegistry()), newWriteQueue(clock.RealClock{})
	r := newRunner(runnerConfig{workers: 1, rules: usual(), shard: v1alpha1.Shard{Count: 1}, clock: clock.RealClock{}, metrics: m, enqueue: queue.Add, log: quiet()})
	r.leading = true
	for _, p := range c.createMany(fleet) {
		p.Status = judged(p.Name, healthy).Status
		require.NoError(b, r.Add(p))
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	seen := cache.NewStore(cache.MetaNamespaceKeyFunc)
	var g errgroup.Group
	g.Go(func() error {
		follow(ctx, clients.probes.ListWatch("default", quiet()), seen)
		return nil
	})
	require.Eventually(b, func() bool { return len(seen.ListKeys()) == fleet }, patience, 10*time.Millisecond, "listed")
	w := newWriter(clients.probes, r, queue, func() bool { return true }, m, quiet())
	g.Go(func() error { return w.run(ctx) })

	begin := time.Now()
	r.mu.Lock()
	for key, x := range r.monitors {
		for range x.spec.healthCheck.FailureThreshold {
			r.record(x, 1, bad(probe.ReasonDialFailed))
		}
		queue.Add(key)
	}
	r.mu.Unlock()
	require.Eventually(b, func() bool {
		for _, p := range seen.List() {
			if p.(*v1alpha1.ProxyProbe).Status.Verdict != unhealthy {
				return false
			}
		}
		return true
	}, 10*patience, 50*time.Millisecond, "seen")
	b.ReportMetric(time.Since(begin).Seconds(), "s-until-seen")
	b.ReportMetric(fleet/time.Since(begin).Seconds(), "flips/s")
	b.ReportMetric(0, "ns/op")
	cancel()
	require.NoError(b, g.Wait())
}

// createMany creates ProxyProbes and returns them as stored.
func (c *cluster) createMany(n int) []*v1alpha1.ProxyProbe {
	c.t.Helper()
	cfg := rest.CopyConfig(c.config)
	cfg.QPS = -1
	client, err := dynamic.NewForConfig(cfg)
	require.NoError(c.t, err)
	c.objects = client.Resource(v1alpha1.ProxyProbeResource()).Namespace("default")
	out := make([]*v1alpha1.ProxyProbe, n)
	var g errgroup.Group
	g.SetLimit(writers)
	for i := range out {
		g.Go(func() error {
			out[i] = c.create(proxyProbeOf(fmt.Sprintf("flip-%05d", i)))
			return nil
		})
	}
	require.NoError(c.t, g.Wait())
	return out
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

func eventually(t testing.TB, condition func() bool, what string) {
	t.Helper()
	testwait.Eventually(t, what, condition)
}
