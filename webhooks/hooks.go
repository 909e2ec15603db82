package webhooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// ErrNotReady: the hooks cannot answer yet, and will soon.
var ErrNotReady = errors.New("the provider config is not loaded yet")

// Options of the hooks.
type Options struct {
	// Providers is the provider config; nil while it is not loaded yet, which
	// makes the hooks ask for another call later.
	Providers Providers
	// CloudInitSecrets: spec.cloudInit.secretRef counts.
	CloudInitSecrets bool
	// MaxReplacing bounds voluntary replacements, per provider.
	MaxReplacing Limit
	// Adapter is the cloud adapter, nil when no provider needs one.
	Adapter Adapter
	// Events are sent to it, nil to send none.
	Events Recorder
	// Timing of polls and the deadline.
	Timing Timing
	// Clock tells the time of decisions.
	Clock clock.PassiveClock
	// Log receives what the hooks remove and what fails.
	Log *slog.Logger
	// Registry receives the metrics.
	Registry prometheus.Registerer
}

// Hooks are the customize, sync and finalize hooks. Any number of requests may
// be in them at once.
type Hooks struct {
	opts    Options
	budget  *budget
	metrics *metrics
	cloud   *cloudSide
	events  *announcer
}

// New returns hooks and registers their metrics.
func New(opts Options) *Hooks {
	b := newBudget(opts.MaxReplacing, opts.Timing.ProvisioningDeadline, opts.Clock)
	m := newMetrics(opts.Registry, b)
	return &Hooks{
		opts: opts, budget: b, metrics: m, events: newAnnouncer(opts.Events),
		cloud: &cloudSide{adapter: opts.Adapter, clock: opts.Clock, metrics: m},
	}
}

// Ready returns nil when the hooks can answer.
func (h *Hooks) Ready() error {
	if h.opts.Providers == nil {
		return ErrNotReady
	}
	return nil
}

// customize answers which related objects the sync hook needs.
func (h *Hooks) customize(_ context.Context, body io.Reader) ([]byte, error) {
	req, err := metacontroller.DecodeCustomizeRequest(body)
	if err != nil {
		return nil, err
	}
	proxy, err := decodeProxy(req.Parent)
	if err != nil {
		return nil, err
	}
	return related(proxy, h.opts.CloudInitSecrets).Encode()
}

func (h *Hooks) sync(ctx context.Context, body io.Reader) ([]byte, error) {
	return h.reconcile(ctx, body, false)
}

func (h *Hooks) finalize(ctx context.Context, body io.Reader) ([]byte, error) {
	return h.reconcile(ctx, body, true)
}

// reconcile answers a sync or finalize request. A request for the other hook is
// refused: the CompositeController's URLs are mixed up, and one of the two
// deletes things.
func (h *Hooks) reconcile(ctx context.Context, body io.Reader, finalizing bool) ([]byte, error) {
	req, err := metacontroller.DecodeRequest(body, podKind, probeKind)
	if err != nil {
		return nil, err
	}
	if req.Finalizing != finalizing {
		return nil, fmt.Errorf("finalizing is %t in a request to the wrong hook; check the hook URLs in the CompositeController: %w", req.Finalizing, metacontroller.ErrBadRequest)
	}
	o, err := observe(req, h.opts.Providers, h.opts.CloudInitSecrets, h.opts.Clock.Now())
	if err != nil {
		return nil, err
	}
	o.Timing = h.opts.Timing
	ctx, cancel := context.WithTimeout(ctx, adapterPatience)
	defer cancel()
	replaced := h.observeCloud(ctx, o)
	o.MayReplace = h.mayReplace(o)
	d, err := decide(*o)
	if err != nil {
		return nil, fmt.Errorf("proxy %s/%s: %w", o.Proxy.Namespace, o.Proxy.Name, err)
	}
	h.replaceInstance(ctx, o, &d, replaced)
	return h.encode(o, &d)
}

func (h *Hooks) encode(o *Observation, d *Decision) ([]byte, error) {
	resp, err := answer(o, d)
	if err != nil {
		return nil, err
	}
	b, err := resp.Encode()
	if err != nil {
		return nil, fmt.Errorf("proxy %s/%s: %w", o.Proxy.Namespace, o.Proxy.Name, err)
	}
	h.settle(o, d)
	h.events.announce(o, d)
	h.metrics.listed(resp.Children)
	h.noteAbandoned(o, d)
	h.countRemoved(o, d, resp)
	return b, nil
}

// mayReplace keeps the replacement budget current and asks it where the
// decision depends on it.
func (h *Hooks) mayReplace(o *Observation) bool {
	provider, uid := o.Proxy.Spec.Provider, o.Proxy.UID
	switch {
	case o.Proxy.Spec.Mode != v1alpha1.ModeManaged:
		return false
	case o.Finalizing:
		h.budget.forget(provider, uid)
		return false
	}
	o.HoldsPlace = h.budget.see(provider, uid, replacementUnderWay(&o.Proxy.Status), o.ready())
	return o.wantsReplacement() && h.budget.allow(provider, uid, o.Instance.ID)
}

// settle gives a place in the budget back when the replacement is over and
// everybody can see it: were it given back with the answer that says so, the
// next one could be seen to go before this one is seen to be back.
func (h *Hooks) settle(o *Observation, d *Decision) {
	p := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionProvisioned)
	if p == nil || p.Reason != v1alpha1.ReasonCreated {
		return
	}
	h.budget.settle(o.Proxy.Spec.Provider, o.Proxy.UID, o.Instance.ID, d.Status.Phase == v1alpha1.PhaseReady && o.knownReady())
}

// noteAbandoned makes noise about an instance that nobody looked after, beside the
// Event, which is only best effort.
func (h *Hooks) noteAbandoned(o *Observation, d *Decision) {
	if !o.Cloud.Abandoned || !d.Finalized {
		return
	}
	provider := o.Proxy.Spec.Provider
	if o.Provider == nil {
		provider = unknownProvider
	}
	h.metrics.abandoned.WithLabelValues(provider).Inc()
	h.opts.Log.Warn("ABANDONED: the Proxy goes and the cloud was not asked; its instance may run on and cost money",
		"proxy", o.Proxy.Name, "namespace", o.Proxy.Namespace, "provider", o.Proxy.Spec.Provider,
		"instance", v1alpha1.InstanceName(o.Proxy.UID), "instanceID", o.Proxy.Status.InstanceID, "providerID", o.Proxy.Status.ProviderID)
}

// countRemoved logs and counts the observed children that the answer leaves
// out. They are counted again if the next call still observes them alive.
func (h *Hooks) countRemoved(o *Observation, d *Decision, resp *metacontroller.Response) {
	for _, child := range removed(o, resp) {
		reason := "Stray"
		if p := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionProvisioned); p != nil && !child.stray {
			reason = p.Reason
		}
		h.metrics.deleted.WithLabelValues(reason).Inc()
		h.opts.Log.Info("child left out, to be deleted", "proxy", o.Proxy.Name, "namespace", o.Proxy.Namespace, "kind", child.kind, "child", child.name, "reason", reason)
	}
}
