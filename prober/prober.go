// Package prober is the process that probes every proxy and writes its verdict.
//
// It watches ProxyProbes, probes each proxy at the interval of its health check, and
// writes ProxyProbe.status when a verdict is first known, when it flips, when the
// latency or the exit of a Healthy proxy drifts, and when the reason changes. The rooms:
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
	"errors"
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

// Client-side limits of calls to the API server, per second. With client-go's default
// of 5 the verdicts of a large fleet would take half an hour.
const (
	apiQPS   = 300
	apiBurst = 600
)

// Config configures a Prober.
type Config struct {
	API             *rest.Config          // API server
	Namespace       string                // Namespace whose ProxyProbes are watched, "" for all
	SystemNamespace string                // where the shard's Lease is
	Shard           v1alpha1.Shard        // of the fleet that this process probes
	Workers         int                   // the maximum of concurrent probes
	Roots           *x509.CertPool        // that certificates must chain to; nil means the system's
	Outage          outage.Config         // configures when failures are suppressed
	Holder          string                // names this process in the Lease. It is unique to each start
	Registry        prometheus.Registerer // gets the metrics
	lease           leaseTimes            // has the durations of the Lease, zero for the defaults
	Clock           clock.WithTicker      // Clock, nil for the real one
	Log             *slog.Logger          // the logger
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
	cfg.Registry.MustRegister(newFleetCollector(r))
	return p, nil
}

// clients are separate, since each has its own rate limit: a burst of verdicts must not
// delay the heartbeat.
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
	secrets, secretsErr := kubernetes.NewForConfig(cfg)
	leases, leasesErr := kubernetes.NewForConfig(cfg)
	if err := errors.Join(secretsErr, leasesErr); err != nil {
		return clients{}, fmt.Errorf("make clients for Secrets and Leases: %w", err)
	}
	return clients{probes: probes, secrets: secrets, leases: leases}, nil
}

// Ready returns nil once the fleet has been listed.
func (p *Prober) Ready() error { return p.runner.ready() }

// Run works until ctx ends, then cancels the probes in flight, drains the queue of
// status writes, and returns nil.
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

// follow keeps the store in sync with the API server until ctx ends.
func follow(ctx context.Context, lw cache.ListerWatcher, store cache.ReflectorStore) {
	cache.NewReflectorWithOptions(lw, &v1alpha1.ProxyProbe{}, store, cache.ReflectorOptions{
		Name:    "proxyprobes",
		Clock:   interruptible{ctx: ctx},
		Backoff: kube.WatchBackoff(),
	}).RunWithContext(ctx)
}

// interruptible is the real clock with waits that also end with a context. The
// reflector's backoff after a failed streaming list ignores its own context for up to
// a minute.
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
