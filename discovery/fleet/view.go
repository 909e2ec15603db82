package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"golang.org/x/sync/errgroup"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// ErrNotSynced: the first lists of the watches are not complete.
var ErrNotSynced = errors.New("fleet not synced yet")

// Config of a View.
type Config struct {
	// Dynamic watches Proxies and ProxyProbes.
	Dynamic dynamic.Interface
	// Kubernetes watches Lease objects.
	Kubernetes kubernetes.Interface
	// Namespace of the Proxies; "" for all.
	Namespace string
	// SystemNamespace has the Lease objects of the probers.
	SystemNamespace string
	// VerdictMaxAge is how long after the last renewal of the prober's Lease its
	// verdicts become stale.
	VerdictMaxAge time.Duration
	// Clock compares renewals with now.
	Clock clock.PassiveClock
	// Log receives errors of the watches.
	Log *slog.Logger
}

// View watches the fleet.
type View struct {
	cfg     Config
	proxies *proxies
	probers *proberLeases
	watches []*watcher
	changed *lease.Signal
}

// NewView returns a view that is empty until Run runs.
func NewView(cfg Config) *View {
	changed := &lease.Signal{}
	v := &View{cfg: cfg, proxies: newProxies(cfg.Log, changed), probers: newProberLeases(cfg.Clock, cfg.Log, changed), changed: changed}
	probes := newProbes(cfg.Log, v.proxies, changed)
	v.watches = []*watcher{
		{what: "proxies", source: ourSource(cfg, v1alpha1.ProxyResource()), example: ofKind("Proxy"), store: v.proxies, synced: &v.proxies.synced, log: cfg.Log},
		{what: "proxyprobes", source: ourSource(cfg, v1alpha1.ProxyProbeResource()), example: ofKind("ProxyProbe"), store: probes, synced: &probes.synced, log: cfg.Log},
		{what: "prober leases", source: leaseSource(cfg), example: &coordinationv1.Lease{}, store: v.probers, synced: &v.probers.synced, log: cfg.Log},
	}
	return v
}

func ofKind(kind string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(kind))
	return u
}

// Run watches until ctx ends, and returns nil.
func (v *View) Run(ctx context.Context) error {
	var g errgroup.Group
	for _, w := range v.watches {
		g.Go(func() error { return w.run(ctx) })
	}
	return g.Wait()
}

// Ready returns nil once all first lists are complete, and before that an error that
// unwraps to ErrNotSynced, with the missing lists and the API server's errors. It
// stays nil when the API server fails later: the snapshot becomes stale by itself,
// after VerdictMaxAge. Nor does it fail when only the watch of ProxyProbes breaks:
// their last verdicts apply until the Proxy's status has a later probe.
func (v *View) Ready() error {
	var missing []error
	for _, w := range v.watches {
		missing = append(missing, w.missing())
	}
	if err := errors.Join(missing...); err != nil {
		return fmt.Errorf("%w: %w", ErrNotSynced, err)
	}
	return nil
}

// Changed returns a channel that is closed at the next event of a watch. Verdicts
// that become stale do not close it.
func (v *View) Changed() <-chan struct{} { return v.changed.C() }

// Snapshot is the fleet at one moment. It is immutable.
type Snapshot struct {
	// Proxies by "namespace/name".
	Proxies []*Proxy
	// Freshness of their verdicts.
	Freshness Freshness
}

// Find returns the proxy with that "namespace/name", nil when there is none.
func (s Snapshot) Find(proxy string) *Proxy {
	i, found := slices.BinarySearchFunc(s.Proxies, proxy, compareKeys)
	if !found {
		return nil
	}
	return s.Proxies[i]
}

// Snapshot returns the current fleet, or the error of Ready.
func (v *View) Snapshot() (Snapshot, error) {
	if err := v.Ready(); err != nil {
		return Snapshot{}, err
	}
	f := NewFreshness(v.probers.list(), v.cfg.Clock.Now(), v.cfg.VerdictMaxAge)
	f.blind = v.watches[len(v.watches)-1].lastErr.Load() != nil
	return Snapshot{Proxies: v.proxies.all(), Freshness: f}, nil
}
