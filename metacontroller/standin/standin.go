// Package standin is a stand-in for Metacontroller on laptops and in tests. It
// runs one CompositeController over the same HTTP hooks and writes API objects as
// Metacontroller 4.17 with its default dynamic apply does, including its
// shortcomings: a hook that fails with Metacontroller fails here. There are two
// exceptions. A null child is an error here and a crash there. The manifest comes
// from a file, so that the controller in hook requests has no UID.
//
// One reconcile of a parent: add the finalizer, claim children, call the customize
// hook (cached), call the sync or finalize hook, schedule the resync, remove the
// finalizer if finalized, delete children, create and update children, replace the
// status.
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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	clienttransport "k8s.io/client-go/transport"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// DefaultWorkers is how many parents Metacontroller reconciles concurrently.
const DefaultWorkers = 5

// discoveryInterval is the period of polling for missing CRDs.
const discoveryInterval = time.Second

// ErrBadConfig: the Config is invalid.
var ErrBadConfig = errors.New("bad stand-in config")

// Config of a StandIn.
type Config struct {
	Controller   *metacontroller.Controller // the manifest from metacontroller.LoadController
	REST         *rest.Config               // the API server. The stand-in disables its rate limits.
	Workers      int                        // how many parents are reconciled concurrently, at least 1
	ResyncPeriod time.Duration              // overrides the manifest's resyncPeriodSeconds unless it is 0
	HookCA       *x509.CertPool             // verifies hooks; nil is the system's authorities
	HookToken    string                     // the bearer token of hook requests; "" sends none
	Clock        clock.WithTicker           // for tests; nil is the real one
	Log          *slog.Logger               // optional
	Registerer   prometheus.Registerer      // of the metrics; optional
}

// StandIn runs one CompositeController.
type StandIn struct {
	deps
	ready atomic.Pointer[error]
}

// New returns a stand-in for cfg, or an error that unwraps to ErrBadConfig.
func New(cfg Config) (*StandIn, error) {
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
	s := &StandIn{deps: deps{Config: cfg, manifest: manifest, metrics: newMetrics(cfg.Registerer)}}
	s.setReady(errors.New("not started"))
	return s, nil
}

// Ready returns nil while the stand-in reconciles, and otherwise why it does not.
func (s *StandIn) Ready() error { return *s.ready.Load() }

func (s *StandIn) setReady(err error) { s.ready.Store(&err) }

// Run reconciles parents until ctx ends, which cancels running reconciles. It
// first waits until the API server serves the manifest's resources, so that CRDs
// may be installed later. It returns nil when ctx ends.
func (s *StandIn) Run(ctx context.Context) error {
	config := rest.CopyConfig(s.REST)
	config.QPS, config.Burst = -1, -1 // the API server is local: no rate limit
	client, dynamicErr := dynamic.NewForConfig(config)
	served, discoveryErr := discovery.NewDiscoveryClientForConfig(config)
	sink, eventsErr := typedcorev1.NewForConfig(config)
	if err := errors.Join(dynamicErr, discoveryErr, eventsErr); err != nil {
		return fmt.Errorf("API clients: %w", err)
	}
	// Events are best-effort: repeated ones are aggregated, those above a rate limit dropped.
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: sink.Events("")})
	defer broadcaster.Shutdown()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: s.HookCA, MinVersion: tls.VersionTLS12}
	defer transport.CloseIdleConnections()
	hooks := http.RoundTripper(transport)
	if s.HookToken != "" {
		hooks = clienttransport.NewBearerAuthRoundTripper(s.HookToken, hooks)
	}

	d := s.deps
	d.client, d.discovery, d.transport = client, served, hooks
	// The scheme is empty: unstructured objects contain their kinds.
	d.events = broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: "metacontroller-standin"})
	c := s.await(ctx, d)
	if c == nil {
		return nil
	}
	s.setReady(errors.New("caches are not synced"))
	defer s.setReady(errors.New("stopped"))
	c.run(ctx, func() { s.setReady(nil) })
	return nil
}

// await returns the controller once the API server serves its resources, or nil
// when ctx ends.
func (s *StandIn) await(ctx context.Context, d deps) *controller {
	for {
		c, err := newController(d)
		if err == nil {
			return c
		}
		if last := s.Ready(); last == nil || last.Error() != err.Error() {
			s.Log.Info("waiting for the API server to serve the manifest's resources", "err", err)
		}
		s.setReady(err)
		select {
		case <-ctx.Done():
			return nil
		case <-s.Clock.After(discoveryInterval):
		}
	}
}
