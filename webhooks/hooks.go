// Package webhooks serves Metacontroller's customize, sync and finalize hooks for
// Proxies.
//
// A sync decodes the request, observes, decides, encodes the answer and applies
// its effects; Hooks.reconcile shows these steps. Package proxy decides and does
// no I/O. Pods are children of a Proxy. VMs are not: the cloud adapter reports and
// changes them, through the interface Adapter. Package events sends Events to the
// API server. The only state between requests is the replacement budget and a
// cache of sent Events.
package webhooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
)

// ErrNotReady: the hooks cannot answer yet. The caller retries.
var ErrNotReady = errors.New("not ready: the provider config is not loaded yet")

// Options of the hooks.
type Options struct {
	// Providers is the provider config; nil while it is not loaded yet. The hooks
	// then ask their caller to retry.
	Providers config.Providers
	// CloudInitSecrets enables spec.cloudInit.secretRef.
	CloudInitSecrets bool
	// MaxReplacing bounds voluntary replacements, per provider; see ParseLimit.
	MaxReplacing intstr.IntOrString
	// Adapter is the cloud adapter, nil when no provider needs one.
	Adapter Adapter
	// Events receives Events, nil to send none.
	Events Recorder
	// Timing of polls and the deadline.
	Timing proxy.Timing
	// Clock is the clock of decisions.
	Clock clock.PassiveClock
	// Log receives deletions and failures.
	Log *slog.Logger
	// Registry receives the metrics.
	Registry prometheus.Registerer
}

// Hooks are the customize, sync and finalize hooks. They are safe for concurrent
// requests.
type Hooks struct {
	opts    Options
	budget  *budget
	metrics *metrics
	adapter *adapterClient
	events  *eventSender

	mu      sync.Mutex
	unknown sets.Set[string] // envelope fields that were logged
}

// New returns hooks and registers their metrics.
func New(opts Options) *Hooks {
	b := newBudget(opts.MaxReplacing, opts.Timing.ProvisioningDeadline, opts.Clock)
	m := newMetrics(opts.Registry, b)
	return &Hooks{
		opts: opts, budget: b, metrics: m, events: newEventSender(opts.Events), unknown: sets.Set[string]{},
		adapter: &adapterClient{api: opts.Adapter, clock: opts.Clock, metrics: m, log: opts.Log},
	}
}

// Ready returns nil when the hooks can answer.
func (h *Hooks) Ready() error {
	if h.opts.Providers == nil {
		return ErrNotReady
	}
	return nil
}

// customize returns which related objects the sync hook needs.
func (h *Hooks) customize(_ context.Context, body io.Reader) ([]byte, error) {
	req, err := metacontroller.DecodeCustomizeRequest(body)
	if err != nil {
		return nil, err
	}
	h.recordUnknown(req.Unknown)
	p, err := decodeProxy(req.Parent)
	if err != nil {
		return nil, err
	}
	return related(p, h.opts.CloudInitSecrets).Encode()
}

func (h *Hooks) sync(ctx context.Context, body io.Reader) ([]byte, error) {
	return h.reconcile(ctx, body, false)
}

func (h *Hooks) finalize(ctx context.Context, body io.Reader) ([]byte, error) {
	return h.reconcile(ctx, body, true)
}

// reconcile answers a sync or finalize request: decode, observe, decide, encode
// the answer, apply its effects. A request for the other hook is refused: the
// CompositeController's URLs are swapped, and one of the two hooks deletes things.
func (h *Hooks) reconcile(ctx context.Context, body io.Reader, finalizing bool) ([]byte, error) {
	req, err := metacontroller.DecodeRequest(body, podKind, probeKind)
	if err != nil {
		return nil, err
	}
	if req.Finalizing != finalizing {
		return nil, fmt.Errorf("finalizing is %t in a request to the wrong hook; check the hook URLs in the CompositeController: %w", req.Finalizing, metacontroller.ErrBadRequest)
	}
	h.recordUnknown(req.Unknown)
	ctx, cancel := context.WithTimeout(ctx, adapterTimeout)
	defer cancel()
	o, err := h.observe(ctx, req)
	if err != nil {
		return nil, err
	}
	d, err := proxy.Decide(o)
	if err != nil {
		return nil, fmt.Errorf("proxy %s/%s: %w", o.Proxy.Namespace, o.Proxy.Name, err)
	}
	resp, err := h.answer(o, &d)
	if err != nil {
		return nil, err
	}
	encoded, err := resp.Encode()
	if err != nil {
		return nil, fmt.Errorf("proxy %s/%s: %w", o.Proxy.Namespace, o.Proxy.Name, err)
	}
	h.adapter.replace(ctx, o, &d)
	h.budget.complete(o, &d)
	h.events.send(o.Proxy, proxy.Transitions(o, &d))
	h.metrics.listed(resp.Children)
	h.recordAbandoned(o, &d)
	h.recordDeleted(o, &d, resp)
	return encoded, nil
}

// recordAbandoned logs and counts an instance that may run on without a Proxy. Its
// Event is only best effort.
func (h *Hooks) recordAbandoned(o *proxy.Observation, d *proxy.Decision) {
	if !o.Adapter.Abandoned || !d.Finalized {
		return
	}
	provider := o.Proxy.Spec.Provider
	if o.Provider == nil {
		provider = unknownProvider
	}
	h.metrics.abandoned.WithLabelValues(provider).Inc()
	h.opts.Log.Warn("ABANDONED: the Proxy goes without a request to the cloud; its instance may run on and cost money",
		"proxy", o.Proxy.Name, "namespace", o.Proxy.Namespace, "provider", o.Proxy.Spec.Provider,
		"instance", v1alpha1.InstanceName(o.Proxy.UID), "instanceID", o.Proxy.Status.InstanceID, "providerID", o.Proxy.Status.ProviderID)
}

// recordDeleted logs and counts the observed children that the answer leaves out.
// They count again if the next request still has them alive.
func (h *Hooks) recordDeleted(o *proxy.Observation, d *proxy.Decision, resp *metacontroller.Response) {
	for _, child := range deleted(o, resp) {
		reason := "Stray"
		if !child.stray {
			reason = provisionedReason(d)
		}
		h.metrics.deleted.WithLabelValues(reason).Inc()
		h.opts.Log.Info("child left out, to be deleted", "proxy", o.Proxy.Name, "namespace", o.Proxy.Namespace, "kind", child.kind, "child", child.name, "reason", reason)
	}
}

// maxUnknownFields bounds the names that are logged: a request may carry any.
const maxUnknownFields = 32

// recordUnknown counts envelope fields that this release ignores, and logs each
// once. A minor release of Metacontroller may add fields; refusing them would stop
// all reconciliation.
func (h *Hooks) recordUnknown(fields []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, field := range fields {
		h.metrics.unknown.Inc()
		if !h.unknown.Has(field) && len(h.unknown) < maxUnknownFields {
			h.unknown.Insert(field)
			h.opts.Log.Warn("hook request has an unknown field, which is ignored; this release may be older than Metacontroller", "field", field)
		}
	}
}
