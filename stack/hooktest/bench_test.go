package hooktest

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
)

const (
	fleetSize = 500
	// mostRatio bounds the cost of our decisions.
	mostRatio = 1.1
	// rounds is the number of tries: load only ever makes a run slower.
	rounds = 2
)

// BenchmarkFleet is the time from the creation of 500 Proxies at once until all
// are Ready, under the real Metacontroller, with our hooks and with trivial ones
// that want the same children. Kubelet and prober are played and take next to no
// time. The two take turns (ours, trivial, trivial, ours), and of each the best
// run counts, so that a busy machine disturbs both alike.
func BenchmarkFleet(b *testing.B) {
	driver := Driver{Strategy: upstream.DynamicApply}
	RealDrivers(b) // or skip
	ours := release{providers: providers, timing: proxy.Timing{
		ProvisioningDeadline: 10 * time.Minute, ProvisioningPoll: 5 * time.Second, DriftPoll: time.Minute, RemovalPoll: 5 * time.Second, BudgetPoll: 5 * time.Second,
	}}.hooks(b).Handler(nil)
	plain := newTrivial(b, ours)
	for b.Loop() {
		var oursTook, plainTook []time.Duration
		ratio := 0.0
		for range rounds {
			oursTook = append(oursTook, converge(b, driver, ours))
			plainTook = append(plainTook, converge(b, driver, plain), converge(b, driver, plain))
			oursTook = append(oursTook, converge(b, driver, ours))
			ratio = slices.Min(oursTook).Seconds() / slices.Min(plainTook).Seconds()
			if ratio <= mostRatio {
				break
			}
		}
		b.Logf("%d Proxies with our hooks %s, with trivial ones %s", fleetSize, oursTook, plainTook)
		b.ReportMetric(slices.Min(oursTook).Seconds(), "s/ours")
		b.ReportMetric(slices.Min(plainTook).Seconds(), "s/trivial")
		b.ReportMetric(ratio, "ratio")
		if ratio > mostRatio {
			b.Errorf("our hooks make it take %.2f times as long, want at most %.2f", ratio, mostRatio)
		}
	}
}

// converge brings a fleet up and returns how long that took.
func converge(b *testing.B, d Driver, hooks http.Handler) time.Duration {
	b.Helper()
	run := &scope{TB: b}
	defer run.end()
	l := New(run, shared.Get(b))
	l.Drive(d, hooks)
	l.PlayKubelet()
	l.PlayProber()
	ready := l.AwaitReady(1)
	l.CreateProxies(Managed("first", provider))
	<-ready // all goroutines have started

	ready = l.AwaitReady(fleetSize + 1)
	began := time.Now()
	l.CreateProxies(fleet(fleetSize)...)
	select {
	case <-ready:
	case <-time.After(5 * time.Minute):
		b.Fatalf("%d of %d are Ready", l.inPhase(v1alpha1.PhaseReady), fleetSize)
	}
	return time.Since(began)
}

// scope is a part of a benchmark that cleans up when it ends. A sub-benchmark
// would do, but then its parent could report no metrics.
type scope struct {
	testing.TB
	cleanups []func()
}

// Cleanup implements testing.TB.
func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) end() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
}
