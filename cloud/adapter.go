// Package cloud is the cloud adapter: a sidecar of the hooks that makes and
// deletes instances outside the cluster. This package puts its parts together:
//
//	provider    what a cloud must offer
//	gcp         Google Compute Engine
//	engine      makes what is into what should be, for one term of acting
//	server      the API that the hooks call
//	leader      one adapter acts at a time
//	gc          deletes what nobody owns
//	gcestandin  a Compute Engine for tests and laptops
//
// # How to add a cloud
//
// One folder with an implementation of provider.Cloud, and one line in the
// registry of cmd/cloud. The engine, the API, the orphan collector and the
// metrics work on provider.Cloud alone.
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
	// intentTTL is three times the resync period of the CompositeController,
	// within which hooks ask for every Proxy again.
	intentTTL = 15 * time.Minute
	// callTimeout bounds a read before a delete together with the delete, and
	// a list of many pages.
	callTimeout = time.Minute
	// concurrency of calls per account.
	concurrency = 16
	// retryAfter is what hooks are told while the answer is not known.
	retryAfter = 5 * time.Second
	// The lease's times are those of Kubernetes' own controllers.
	leaseDuration, renewDeadline, retryPeriod = 15 * time.Second, 10 * time.Second, 2 * time.Second
)

// Config of an Adapter.
type Config struct {
	// Socket is the path of the unix socket that the API listens on.
	Socket string
	// Installation whose instances are ours. It must never change.
	Installation string
	// Providers of the provider config.
	Providers []provider.Named
	// ListInterval between two lists of one account.
	ListInterval time.Duration
	// QuotaRetry is how long a zone rests after a quota was exceeded.
	QuotaRetry time.Duration
	// MutationsPerSecond and MutationsBurst pace inserts and deletes.
	MutationsPerSecond float64
	MutationsBurst     int

	// Kube is the API server; nil means no lease and no collection of orphans.
	Kube *rest.Config
	// SystemNamespace holds the Lease object.
	SystemNamespace string
	// GCInterval, GCMinAge and GCDryRun are the collector's. GCDisabled says why
	// there is none; empty means that there is one.
	GCInterval, GCMinAge time.Duration
	GCDryRun             bool
	GCDisabled           string
	// Namespace whose Proxies count as alive; empty means all.
	Namespace string

	// Registry takes the metrics.
	Registry prometheus.Registerer
	// Log of the adapter.
	Log *slog.Logger
}

// Adapter is the whole process but for its flags.
type Adapter struct {
	cfg     Config
	lease   *leader.Lease
	proxies gc.Proxies
	server  *server.Server
	metrics *metrics
	bucket  *provider.Bucket
	clock   clock.RealClock
	// current engine, nil while this adapter may not act.
	current   atomic.Pointer[reconcile.Reconciler]
	listening atomic.Bool
}

// New returns an adapter that does nothing yet.
func New(cfg Config) (*Adapter, error) {
	a := &Adapter{cfg: cfg, bucket: provider.NewBucket(cfg.MutationsPerSecond, cfg.MutationsBurst)}
	a.metrics = newMetrics(cfg.Registry)
	cfg.Registry.MustRegister(newCollector(a.list))
	a.server = server.New(a.mayAct, retryAfter, a.metrics, cfg.Log)
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

// identity is another one after each start, so that a restarted process never
// takes a predecessor's lease for its own.
func identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "_" + uuid.NewString()
}

// Run serves and acts until ctx ends, and then lets the calls under way end and
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

// Ready returns nil once the API listens. Neither the lease nor any cloud is a
// reason to take the hooks' Pod out of service.
func (a *Adapter) Ready() error {
	if !a.listening.Load() {
		return fmt.Errorf("the API does not listen on %s yet", a.cfg.Socket)
	}
	return nil
}
