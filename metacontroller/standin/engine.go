package standin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// DefaultWorkers is how many parents Metacontroller syncs at once.
const DefaultWorkers = 5

// discoveryInterval is how often a missing CRD is looked for.
const discoveryInterval = time.Second

// ErrBadConfig: New was given a Config that cannot work.
var ErrBadConfig = errors.New("bad engine config")

// Config says what an Engine drives.
type Config struct {
	// Controller is the manifest, as metacontroller.LoadController returns it.
	Controller *metacontroller.Controller
	// REST is where the API server is. The engine raises its rate limits.
	REST *rest.Config
	// Workers is how many parents are synced at once, at least 1.
	Workers int
	// ResyncPeriod replaces the manifest's resyncPeriodSeconds; 0 keeps it.
	ResyncPeriod time.Duration
	// HookCA verifies hooks; nil trusts what the system trusts.
	HookCA *x509.CertPool
	// HookToken is the bearer token that hooks are shown; "" shows none.
	HookToken string
	// Clock is for tests; nil is the real one.
	Clock clock.WithTicker
	// Log receives what happens; nil drops it.
	Log *slog.Logger
	// Registerer gets the engine's metrics; nil keeps none.
	Registerer prometheus.Registerer
}

// Engine drives one CompositeController.
type Engine struct {
	cfg      Config
	manifest json.RawMessage
	metrics  *metrics
	ready    atomic.Pointer[error]
}

// New returns an engine for cfg, or an error that unwraps to ErrBadConfig.
func New(cfg Config) (*Engine, error) {
	switch {
	case cfg.Controller == nil:
		return nil, fmt.Errorf("%w: no controller", ErrBadConfig)
	case cfg.REST == nil:
		return nil, fmt.Errorf("%w: no REST config", ErrBadConfig)
	case cfg.Workers < 1:
		return nil, fmt.Errorf("%w: %d workers, want at least 1", ErrBadConfig, cfg.Workers)
	case cfg.ResyncPeriod < 0:
		return nil, fmt.Errorf("%w: resync period %s is negative", ErrBadConfig, cfg.ResyncPeriod)
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	manifest, err := json.Marshal(cfg.Controller)
	if err != nil {
		return nil, fmt.Errorf("%w: encode controller: %w", ErrBadConfig, err)
	}
	e := &Engine{cfg: cfg, manifest: manifest, metrics: newMetrics(cfg.Registerer)}
	e.setReady(errors.New("not started"))
	return e, nil
}

// Ready returns nil while the engine syncs, and otherwise what it waits for.
func (e *Engine) Ready() error { return *e.ready.Load() }

func (e *Engine) setReady(err error) { e.ready.Store(&err) }

// Run syncs parents until ctx ends. It first waits for the manifest's resources
// to be served, so that CRDs may be installed later. Syncs under way are broken
// off. It returns nil when ctx ended.
func (e *Engine) Run(ctx context.Context) error {
	config := rest.CopyConfig(e.cfg.REST)
	config.QPS, config.Burst = -1, -1 // a laptop's own API server needs no mercy
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("dynamic client: %w", err)
	}
	served, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("discovery client: %w", err)
	}
	events, stopEvents, err := newRecorder(ctx, config)
	if err != nil {
		return err
	}
	defer stopEvents()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: e.cfg.HookCA, MinVersion: tls.VersionTLS12}
	defer transport.CloseIdleConnections()

	c := e.await(ctx, deps{
		spec:      e.cfg.Controller,
		manifest:  e.manifest,
		client:    client,
		discovery: served,
		transport: bearing{e.cfg.HookToken, transport},
		events:    events,
		clock:     e.cfg.Clock,
		log:       e.cfg.Log,
		metrics:   e.metrics,
		workers:   e.cfg.Workers,
		resync:    e.cfg.ResyncPeriod,
	})
	if c == nil {
		return nil
	}
	e.setReady(errors.New("caches are not filled yet"))
	defer e.setReady(errors.New("stopped"))
	c.run(ctx, func() { e.setReady(nil) })
	return nil
}

// await returns the controller as soon as the API server serves its resources,
// nil when ctx ends first.
func (e *Engine) await(ctx context.Context, d deps) *controller {
	for {
		c, err := newController(d)
		if err == nil {
			return c
		}
		if last := e.Ready(); last == nil || last.Error() != err.Error() {
			e.cfg.Log.Info("waiting for the API server to serve the manifest's resources", "err", err)
		}
		e.setReady(err)
		select {
		case <-ctx.Done():
			return nil
		case <-e.cfg.Clock.After(discoveryInterval):
		}
	}
}
