package prober

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// patience bounds waiting for what is sure to come.
const patience = 30 * time.Second

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// rig drives an engine by hand: nothing runs beside the test, and time stands
// still until the test moves it.
type rig struct {
	t       *testing.T
	engine  *engine
	clock   *clocktesting.FakeClock
	pending map[types.NamespacedName]int
	reg     *prometheus.Registry
}

func newRig(t *testing.T, workers int) *rig {
	t.Helper()
	r := &rig{t: t, clock: clocktesting.NewFakeClock(epoch()), pending: map[types.NamespacedName]int{}, reg: prometheus.NewRegistry()}
	r.engine = newEngine(nil, v1alpha1.Shard{Count: 1}, workers, r.clock, newMetrics(r.reg), quiet())
	r.engine.leading = true
	r.reg.MustRegister(newSeriesCollector(r.engine.series))
	r.engine.jitter = func(d time.Duration) time.Duration { return d / 2 }
	var mu sync.Mutex // direct checks end at once
	r.engine.pending = func(key types.NamespacedName) {
		mu.Lock()
		defer mu.Unlock()
		r.pending[key]++
	}
	return r
}

// handed dispatches and returns the jobs that came of it.
func (r *rig) handed() []job {
	r.t.Helper()
	r.engine.dispatch(context.Background())
	var jobs []job
	for len(r.engine.jobs) > 0 {
		jobs = append(jobs, <-r.engine.jobs)
	}
	return jobs
}

// one expects one job.
func (r *rig) one() job {
	r.t.Helper()
	jobs := r.handed()
	require.Len(r.t, jobs, 1)
	return jobs[0]
}

// none expects no job.
func (r *rig) none() {
	r.t.Helper()
	require.Empty(r.t, r.handed())
}

// step moves time on, past a scheduler that is awake.
func (r *rig) step(d time.Duration) {
	r.clock.Step(d)
	now := r.clock.Now()
	r.engine.awake.Store(&now)
}

// round probes the one target once and moves on to its next probe.
func (r *rig) round(result probe.Result) {
	r.t.Helper()
	r.engine.finish(r.one(), result)
	r.step(30 * time.Second)
}

// write takes what is to be written as written.
func (r *rig) write(p *v1alpha1.ProxyProbe) report {
	r.t.Helper()
	rep, ok := r.engine.report(keyOf(p))
	require.True(r.t, ok, "nothing to write")
	r.engine.written(rep, "")
	return rep
}

func (r *rig) nothingToWrite(p *v1alpha1.ProxyProbe) {
	r.t.Helper()
	_, ok := r.engine.report(keyOf(p))
	require.False(r.t, ok, "something to write")
}

func (r *rig) verdict(p *v1alpha1.ProxyProbe) v1alpha1.Verdict {
	r.t.Helper()
	require.Contains(r.t, r.engine.targets, keyOf(p))
	return r.engine.targets[keyOf(p)].tally.verdict
}

// series returns the names of proxies in the metrics.
func (r *rig) series() []string {
	r.t.Helper()
	families, err := r.reg.Gather()
	require.NoError(r.t, err)
	var names []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "proxy" && strings.HasSuffix(f.GetName(), "_failures_total") {
					names = append(names, l.GetValue())
				}
			}
		}
	}
	return names
}

func good(latency time.Duration) probe.Result {
	return probe.Result{Outcome: probe.Success, Reason: probe.ReasonProbeSucceeded, Message: "fine", Start: epoch(), Latency: latency}
}

func bad(reason probe.Reason) probe.Result {
	return probe.Result{Outcome: probe.Failure, Reason: reason, Message: "not fine", Start: epoch(), Latency: time.Second}
}

func unsure(reason probe.Reason) probe.Result {
	return probe.Result{Outcome: probe.Inconclusive, Reason: reason, Message: "not known", Start: epoch()}
}

// proxyProbeOf returns a ProxyProbe as an API server would have it.
func proxyProbeOf(name string) *v1alpha1.ProxyProbe {
	hc := (*v1alpha1.HealthCheck)(nil).OrDefault()
	return &v1alpha1.ProxyProbe{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crawl", Name: name, UID: types.UID("uid-" + name), Generation: 1},
		Spec:       v1alpha1.ProxyProbeSpec{InstanceID: "instance-1", Host: "192.0.2.1", Port: 3128, HealthCheck: &hc},
	}
}

// judged is a ProxyProbe that carries a verdict on its instance.
func judged(name string, v v1alpha1.Verdict) *v1alpha1.ProxyProbe {
	p := proxyProbeOf(name)
	latency, then := int64(40), metav1.NewTime(epoch().Add(-time.Hour))
	p.Status = v1alpha1.ProxyProbeStatus{
		InstanceID: p.Spec.InstanceID, Verdict: v, LatencyMillis: &latency,
		LastTransitionTime: &then, LastProbeTime: &then, ObservedGeneration: 1,
	}
	return p
}
