// Package prober is the process that probes every proxy and writes its verdict.
//
// It watches ProxyProbes, probes each proxy at the interval of its health check, and
// writes ProxyProbe.status when a verdict is first known, when it flips, and when the
// latency or the exit of a Healthy proxy drifts. The rooms:
//
//   - probe: one probe, stage by stage
//   - schedule: when a proxy is probed, and on which worker
//   - health: counters, verdict and status of one proxy
//   - outage: outages of probe targets, and of the whole fleet
//
// This package wires them: fleet_watch.go fills monitors (monitor.go), runner.go runs
// the loops, check.go adds credentials, record.go passes results on to health and
// outage and applies their effects, writer.go and client.go write statuses,
// leadership.go holds the shard's Lease, explain.go serves /debug/probes.
package prober

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/kube"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/leader"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/outage"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// Client-side limits of calls to the API server, per second. The defaults of
// client-go (5) would take half an hour over the verdicts of a large fleet.
const (
	apiQPS   = 300
	apiBurst = 600
)

// Config says what a Prober works on.
type Config struct {
	// API server.
	API *rest.Config
	// Namespace whose ProxyProbes are watched, "" for all.
	Namespace string
	// SystemNamespace is where the shard's Lease is.
	SystemNamespace string
	// Shard of the fleet that is ours.
	Shard v1alpha1.Shard
	// Workers is how many probes may be in flight at once.
	Workers int
	// Roots that targets' certificates must chain to; nil means the system's.
	Roots *x509.CertPool
	// Outage says when failures are suppressed.
	Outage outage.Config
	// Holder names this process in the Lease, another after each start.
	Holder string
	// Registry gets the metrics.
	Registry prometheus.Registerer
	// lease is how the Lease is held, the zero value for the defaults.
	lease leaseTimes
	// Clock, nil for the real one.
	Clock clock.WithTicker
	// Log receives what happens.
	Log *slog.Logger
}

// Prober is the process, without its command line and ops server.
type Prober struct {
	runner  *runner
	writer  *writer
	lease   *leader.Lease
	watch   cache.ListerWatcher
	times   leaseTimes
	metrics *metrics
	clock   clock.PassiveClock
}

// New builds a Prober. It does not call the API server.
func New(cfg Config) (*Prober, error) {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	clients, err := newClients(cfg.API)
	if err != nil {
		return nil, err
	}
	m, queue := newMetrics(cfg.Registry), newWriteQueue(cfg.Clock)
	prober := probe.New(cfg.Roots)
	c := &checker{
		probe:   prober.Probe,
		secrets: credentials.NewCache(credentials.NewReader(clients.secrets), secretTTL, cfg.Clock),
	}
	r := newRunner(runnerConfig{
		check: c.check, direct: prober.Direct, rules: cfg.Outage, shard: cfg.Shard, workers: cfg.Workers,
		clock: cfg.Clock, metrics: m, enqueue: queue.Add, log: cfg.Log,
	})
	p := &Prober{
		runner: r, metrics: m, clock: cfg.Clock, times: cmp.Or(cfg.lease, defaultLeaseTimes()),
		watch: clients.probes.ListWatch(cfg.Namespace, cfg.Log),
	}
	p.lease = p.newLease(cfg, clients)
	p.writer = newWriter(clients.probes, r, queue, p.mayWrite, m, cfg.Log)
	cfg.Registry.MustRegister(newTargetCollector(r.verdicts), newSharedExits(r.sharedExits), newLeaderGauge(r.leads), newSeriesCollector(r.allSeries))
	return p, nil
}

// clients are one per purpose, since each has its own limit: a burst of verdicts
// must not hold up the sign of life.
type clients struct {
	probes          *Client
	secrets, leases kubernetes.Interface
}

func newClients(cfg *rest.Config) (clients, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst, cfg.RateLimiter = apiQPS, apiBurst, nil
	probes, err := NewClient(cfg)
	if err != nil {
		return clients{}, err
	}
	secrets, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return clients{}, fmt.Errorf("make a client for Secrets: %w", err)
	}
	leases, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return clients{}, fmt.Errorf("make a client for Leases: %w", err)
	}
	return clients{probes: probes, secrets: secrets, leases: leases}, nil
}

// Ready returns nil when the fleet is known.
func (p *Prober) Ready() error { return p.runner.ready() }

// Run works until ctx ends, then cuts off what is in flight, writes the verdicts
// that are known, and returns nil.
func (p *Prober) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.runner.run(ctx) })
	g.Go(func() error { return p.writer.run(ctx) })
	g.Go(func() error { return p.contend(ctx) })
	g.Go(func() error {
		follow(ctx, p.watch, p.runner)
		return nil
	})
	return g.Wait()
}

// follow keeps the store filled until ctx ends.
func follow(ctx context.Context, lw cache.ListerWatcher, store cache.ReflectorStore) {
	cache.NewReflectorWithOptions(lw, &v1alpha1.ProxyProbe{}, store, cache.ReflectorOptions{
		Name:    "proxyprobes",
		Clock:   interruptible{ctx: ctx},
		Backoff: kube.WatchBackoff(),
	}).RunWithContext(ctx)
}

// interruptible is the real clock, but for waits that also end with a context.
// The reflector, while it backs off from a failed streaming list, sleeps through
// the end of its own for up to a minute.
type interruptible struct {
	clock.RealClock
	ctx context.Context
}

// After returns a channel that is closed after d, or when the context ends.
func (c interruptible) After(d time.Duration) <-chan time.Time {
	wait, cancel := context.WithTimeout(c.ctx, d)
	done := make(chan time.Time)
	context.AfterFunc(wait, func() {
		cancel()
		close(done)
	})
	return done
}
