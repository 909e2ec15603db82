// Package cloud is the cloud adapter: a sidecar of the hooks that makes and deletes
// instances outside the cluster. This package connects its parts:
//
//	provider    the contract with a cloud
//	gcp         Google Compute Engine
//	reconcile   brings instances to their desired state, for one term
//	server      the API that the hooks call
//	gc          deletes orphans
//	gcestandin  a stand-in for Compute Engine, for tests and laptops
//
// A term is as long as this adapter holds the lease (internal/leader). CONTRIBUTING.md
// lists the steps to add a cloud.
package cloud

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gc"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/reconcile"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/server"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/leader"
)

const (
	// intentTTL is three times the resync period of the CompositeController, within
	// which the hooks repeat the request for every Proxy.
	intentTTL   = 15 * time.Minute
	callTimeout = time.Minute     // bounds a delete with the read before it, and a list of many pages
	concurrency = 16              // the limit of calls in flight per account
	retryAfter  = 5 * time.Second // the Retry-After of responses while the state is not known
	// The lease's timing is that of Kubernetes' own controllers.
	leaseDuration, renewDeadline, retryPeriod = 15 * time.Second, 10 * time.Second, 2 * time.Second
)

// Config of an Adapter.
type Config struct {
	Socket             string           // the path of the API's unix socket
	Installation       string           // Installation label of all instances. It must never change
	Providers          []provider.Named // of the provider config
	ListInterval       time.Duration    // between two lists of one account
	QuotaRetry         time.Duration    // the wait in a zone after a quota was exceeded
	MutationsPerSecond float64          // MutationsPerSecond and MutationsBurst throttle inserts and deletes
	MutationsBurst     int

	Kube            *rest.Config // the API server; nil disables the lease and the orphan collector
	SystemNamespace string       // of the Lease object
	// GCInterval, GCMinAge and GCDryRun configure the orphan collector. GCDisabled is
	// the reason to run none; empty runs it.
	GCInterval, GCMinAge time.Duration
	GCDryRun             bool
	GCDisabled           string
	Namespace            string // Namespace whose Proxies count as alive; empty means all

	Registry prometheus.Registerer // of the metrics
	Log      *slog.Logger          // of the adapter
}

// Adapter is the whole process except its flags.
type Adapter struct {
	cfg       Config
	lease     *leader.Lease
	proxies   gc.Proxies
	server    *server.Server
	metrics   *metrics
	bucket    *provider.Bucket
	clock     clock.RealClock
	current   atomic.Pointer[reconcile.Reconciler] // current reconciler, nil while this adapter may not act
	listening atomic.Bool
}

// New returns an adapter that is not running yet.
func New(cfg Config) (*Adapter, error) {
	a := &Adapter{cfg: cfg, bucket: provider.NewBucket(cfg.MutationsPerSecond, cfg.MutationsBurst)}
	a.metrics = newMetrics(cfg.Registry)
	cfg.Registry.MustRegister(newCollector(a.list))
	a.server = server.New(a.mayAct, retryAfter, a.metrics.Answered, cfg.Log)
	if cfg.Kube == nil {
		cfg.Log.Warn("no --kubeconfig and no service account: this adapter acts without a lease, so that it must be the only one, and never collects orphans")
		return a, nil
	}
	clients, err := kubernetes.NewForConfig(cfg.Kube)
	if err != nil {
		return nil, fmt.Errorf("client for the lease: %w", err)
	}
	objects, err := metadata.NewForConfig(cfg.Kube)
	if err != nil {
		return nil, fmt.Errorf("client for Proxies: %w", err)
	}
	a.proxies = gc.APIServer{Client: objects, Namespace: cfg.Namespace}
	a.lease = leader.New(leader.Config{
		Client: clients, Namespace: cfg.SystemNamespace, Name: "cloud-" + cfg.Installation, Identity: identity(),
		Duration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		Clock: a.clock, Log: cfg.Log,
	})
	return a, nil
}

// identity differs after each start, so that a restarted process does not take its
// predecessor's lease for its own.
func identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "_" + uuid.NewString()
}

// Run serves and acts until ctx ends. It then waits for the calls in flight and
// releases the lease.
func (a *Adapter) Run(ctx context.Context) error {
	ln, err := server.Listen(a.cfg.Socket)
	if err != nil {
		return fmt.Errorf("--socket: %w", err)
	}
	a.cfg.Log.Info("API listening", "addr", a.cfg.Socket, "installation", a.cfg.Installation)
	a.listening.Store(true)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return httpapi.Run(ctx, httpapi.NewServer(a.server.Handler(), a.cfg.Log), ln) })
	g.Go(func() error {
		if a.lease == nil {
			a.lead(ctx)
			return nil
		}
		return a.lease.Run(ctx, a.lead)
	})
	return g.Wait()
}

// mayAct returns why this adapter may not act.
func (a *Adapter) mayAct() error {
	if a.lease == nil {
		return nil
	}
	_, err := a.lease.Writer()
	return err
}

// Ready returns nil once the API listens. It does not depend on the lease or on any
// cloud, which would take the hooks' Pod out of service.
func (a *Adapter) Ready() error {
	if !a.listening.Load() {
		return fmt.Errorf("the API does not listen on %s yet", a.cfg.Socket)
	}
	return nil
}

// lead runs one term, with a new cache.
func (a *Adapter) lead(ctx context.Context) {
	providers := a.decorated()
	r := reconcile.New(reconcile.Options{
		Installation: a.cfg.Installation, Providers: providers, Bucket: a.bucket,
		ListInterval: a.cfg.ListInterval, QuotaRetry: a.cfg.QuotaRetry, IntentTTL: intentTTL,
		CallTimeout: callTimeout, Concurrency: concurrency,
		Clock: a.clock, Made: a.metrics.Made, Log: a.cfg.Log,
	})
	a.current.Store(r)
	defer a.current.Store(nil)
	defer a.server.Lead(r)()
	var g errgroup.Group
	g.Go(func() error { r.Run(ctx); return nil })
	if collector := a.collector(r, providers); collector != nil {
		g.Go(func() error { collector.Run(ctx); return nil })
	}
	_ = g.Wait() // neither returns an error
}

// decorated providers count their calls, and check the lease before each mutation.
func (a *Adapter) decorated() []provider.Named {
	out := make([]provider.Named, 0, len(a.cfg.Providers))
	for _, named := range a.cfg.Providers {
		named.Cloud = provider.WithMetrics(named.Name, named.Cloud, a.metrics.Request, a.clock)
		if a.lease != nil {
			named.Cloud = provider.WithGuard(named.Cloud, a.lease)
		}
		out = append(out, named)
	}
	return out
}

// collector returns the orphan collector of a term, nil for none.
func (a *Adapter) collector(r *reconcile.Reconciler, providers []provider.Named) *gc.Collector {
	if a.proxies == nil {
		return nil
	}
	if a.cfg.GCDisabled != "" {
		a.cfg.Log.Warn("orphans are not collected", "why", a.cfg.GCDisabled)
		return nil
	}
	return gc.New(gc.Config{
		Installation: a.cfg.Installation, Providers: providers, Proxies: a.proxies, Forget: r.Forget,
		Bucket: a.bucket, Interval: a.cfg.GCInterval, MinAge: a.cfg.GCMinAge, DryRun: a.cfg.GCDryRun,
		Clock: a.clock, Swept: a.metrics.Swept, Log: a.cfg.Log,
	})
}
