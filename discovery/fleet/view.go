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

// ErrNotSynced: the first lists have not come in, so nothing is known.
var ErrNotSynced = errors.New("fleet not known yet")

// Config of a View.
type Config struct {
	// Dynamic watches Proxies and ProxyProbes.
	Dynamic dynamic.Interface
	// Kubernetes watches Lease objects.
	Kubernetes kubernetes.Interface
	// Namespace of the Proxies; "" for all.
	Namespace string
	// SystemNamespace is where probers keep their Lease objects.
	SystemNamespace string
	// VerdictMaxAge is for how long verdicts count after the prober's last
	// sign of life.
	VerdictMaxAge time.Duration
	// Clock tells the time.
	Clock clock.PassiveClock
	// Log receives what goes wrong with the watches.
	Log *slog.Logger
}

// View is an up-to-date picture of the fleet.
type View struct {
	cfg      Config
	proxies  *proxies
	renewals *renewals
	watches  []*watcher
	changed  *lease.Signal
}

// NewView returns a view that knows nothing until Run runs.
func NewView(cfg Config) *View {
	changed := &lease.Signal{}
	v := &View{cfg: cfg, proxies: newProxies(cfg.Log, changed), renewals: newRenewals(cfg.Clock, cfg.Log, changed), changed: changed}
	words := &probes{log: cfg.Log, proxies: v.proxies}
	v.watches = []*watcher{
		{what: "proxies", source: ourSource(cfg, v1alpha1.ProxyResource()), example: ofKind("Proxy"), store: v.proxies, synced: &v.proxies.synced, log: cfg.Log},
		{what: "proxyprobes", source: ourSource(cfg, v1alpha1.ProxyProbeResource()), example: ofKind("ProxyProbe"), store: words, synced: &words.synced, log: cfg.Log},
		{what: "prober leases", source: leaseSource(cfg), example: &coordinationv1.Lease{}, store: v.renewals, synced: &v.renewals.synced, log: cfg.Log},
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

// Ready returns nil once all lists have come in, and before that an error that
// unwraps to ErrNotSynced and says what is missing and what the API server
// answered. It stays nil when the API server goes away later: what is known
// goes stale by itself, after VerdictMaxAge. Nor does it fail when ProxyProbes alone
// cannot be followed any more: what they said last counts until the Proxy's status
// tells of a later probe, and new verdicts come by the status.
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

// Changed returns a channel that is closed at the next event of a watch. What
// goes stale by its time closes nothing.
func (v *View) Changed() <-chan struct{} { return v.changed.C() }

// Snapshot is the fleet at one moment. It does not change.
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

// Snapshot returns the fleet as of now, or Ready's error.
func (v *View) Snapshot() (Snapshot, error) {
	if err := v.Ready(); err != nil {
		return Snapshot{}, err
	}
	return Snapshot{
		Proxies:   v.proxies.all(),
		Freshness: NewFreshness(v.renewals.list(), v.cfg.Clock.Now(), v.cfg.VerdictMaxAge),
	}, nil
}
