package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// Adapter is the cloud adapter: it is told what should be, answers at once with
// what is, and does the work in the background. Errors unwrap to the classes of
// package adapter. Both methods may be repeated at any time.
type Adapter interface {
	// Put says which instance should be.
	Put(ctx context.Context, provider, name string, req adapter.PutRequest) (adapter.Instance, error)
	// Delete says that none of this UID should be; only adapter.StateAbsent means
	// that there is none.
	Delete(ctx context.Context, provider, name, uid, providerID string) (adapter.Instance, error)
}

const (
	// adapterPatience bounds all that one hook call asks the adapter. The adapter
	// answers from memory, and Metacontroller gives up after 10 s.
	adapterPatience = 2 * time.Second
	// adapterRest is how long nobody asks after a question without an answer: an
	// adapter that hangs must not hold all of Metacontroller's few workers, which
	// serve Pods as well.
	adapterRest = 5 * time.Second
)

// cloudSide asks the adapter on behalf of the hooks.
type cloudSide struct {
	adapter Adapter // nil when there is none
	clock   clock.PassiveClock
	metrics *metrics

	mu    sync.Mutex
	rests time.Time
}

var (
	errNoAdapter = fmt.Errorf("%w: webhooks were started without --cloud-socket", adapter.ErrUnavailable)
	errResting   = fmt.Errorf("%w: it left the last question unanswered", adapter.ErrUnavailable)
)

// resting reports whether the adapter is left alone for now.
func (c *cloudSide) resting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock.Now().Before(c.rests)
}

// ask makes one call, unless there is nobody to ask.
func (c *cloudSide) ask(ctx context.Context, method string, call func(context.Context) (adapter.Instance, error)) (adapter.Instance, error) {
	if c.adapter == nil {
		return adapter.Instance{}, errNoAdapter
	}
	if c.resting() {
		c.metrics.asked(method, "skipped", 0)
		return adapter.Instance{}, errResting
	}
	start := c.clock.Now()
	got, err := call(ctx)
	c.metrics.asked(method, askResult(err), c.clock.Since(start))
	if errors.Is(err, context.DeadlineExceeded) {
		c.mu.Lock()
		c.rests = c.clock.Now().Add(adapterRest)
		c.mu.Unlock()
	}
	return got, err
}

// askResult is an error's class, for the metric.
func askResult(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, adapter.ErrNotReady):
		return "not_ready"
	case errors.Is(err, adapter.ErrUnknownProvider):
		return "unknown_provider"
	case errors.Is(err, adapter.ErrDeleted):
		return "deleted"
	case errors.Is(err, adapter.ErrInvalid):
		return "invalid"
	}
	return "unavailable"
}

// observeCloud completes o with what the adapter says, and returns which
// instance it was told to get rid of. It asks only about VMs, and not when the
// wanted VM cannot be told or was refused for good.
func (h *Hooks) observeCloud(ctx context.Context, o *Observation) (replaced string) {
	switch {
	case o.Proxy.Spec.Mode != v1alpha1.ModeManaged:
	case o.Finalizing:
		h.observeEnd(ctx, o)
	case o.Provider.outside():
		return h.observeVM(ctx, o)
	}
	return ""
}

func (h *Hooks) observeVM(ctx context.Context, o *Observation) (replaced string) {
	hash, why := o.wanted()
	switch {
	case why != nil:
		return ""
	case o.latched(hash):
		o.Instance = absentInstance()
		return ""
	case o.Proxy.DeletionTimestamp != nil:
		o.Cloud.Problem = &trouble{v1alpha1.ReasonCloudAdapterUnavailable, "the Proxy is being deleted; no instance is made any more"}
		return ""
	case !slices.Contains(o.Proxy.Finalizers, metacontroller.Finalizer):
		o.Cloud.Problem = &trouble{v1alpha1.ReasonCloudAdapterUnavailable, fmt.Sprintf(
			"the Proxy lacks the finalizer %s, without which a VM could outlive it: the CompositeController must have its finalize hook", metacontroller.Finalizer)}
		return ""
	}
	replaced = o.replaceSoFar(hash)
	got, err := h.put(ctx, o, hash, replaced)
	if err == nil {
		var in Instance
		if in, err = vmInstance(got); err == nil {
			o.Instance, o.Cloud.Failure = in, got.Failure
			return replaced
		}
	}
	h.noAnswer(o, err)
	return replaced
}

func (h *Hooks) put(ctx context.Context, o *Observation, hash, replace string) (adapter.Instance, error) {
	return h.cloud.ask(ctx, "put", func(ctx context.Context) (adapter.Instance, error) {
		return h.cloud.adapter.Put(ctx, o.Proxy.Spec.Provider, v1alpha1.InstanceName(o.Proxy.UID), o.putRequest(hash, replace))
	})
}

// replaceInstance tells the adapter of a replacement that was decided just now.
// If that fails the next call repeats it, since the status says so by then.
func (h *Hooks) replaceInstance(ctx context.Context, o *Observation, d *Decision, told string) {
	if d.Replace == "" || d.Replace == told {
		return
	}
	hash, why := o.wanted()
	if why != nil {
		return
	}
	h.opts.Log.Info("instance is to be replaced", "proxy", o.Proxy.Name, "namespace", o.Proxy.Namespace, "provider", o.Proxy.Spec.Provider, "instanceID", d.Replace)
	if _, err := h.put(ctx, o, hash, d.Replace); err != nil {
		h.opts.Log.Warn("cloud adapter was not told of a replacement; the next call repeats it", "proxy", o.Proxy.Name, "namespace", o.Proxy.Namespace, "err", short(err.Error()))
	}
}

// observeEnd asks for the end of a VM. A Pod's end is in the request.
func (h *Hooks) observeEnd(ctx context.Context, o *Observation) {
	if !o.mayBeVM() || o.Instance.exists() && !o.Instance.VM {
		return
	}
	if o.Proxy.Annotations[v1alpha1.AnnotationAbandon] == v1alpha1.ValueTrue {
		o.Cloud.Abandoned, o.Instance = true, absentInstance()
		return
	}
	status, hint := &o.Proxy.Status, ""
	if o.namesVM() {
		hint = status.ProviderID
	}
	got, err := h.cloud.ask(ctx, "delete", func(ctx context.Context) (adapter.Instance, error) {
		return h.cloud.adapter.Delete(ctx, o.Proxy.Spec.Provider, v1alpha1.InstanceName(o.Proxy.UID), string(o.Proxy.UID), hint)
	})
	in := Instance{}
	if err == nil {
		in, err = vmInstance(got)
	}
	switch {
	case err == nil && in.exists():
		in.Terminating = true
		in.ProviderID, in.ID = cmp.Or(in.ProviderID, hint), cmp.Or(in.ID, status.InstanceID)
		o.Instance, o.Cloud.Failure = in, got.Failure
	case err == nil:
		o.Instance = in
	case o.Provider == nil && !o.namesVM() && !o.awaitsVM() && (errors.Is(err, adapter.ErrUnknownProvider) || h.cloud.adapter == nil):
		o.Instance = absentInstance() // nobody ever knew that provider
	default:
		o.Instance = carriedInstance(status)
		h.noAnswer(o, err)
	}
}

// noAnswer notes why the adapter did not tell.
func (h *Hooks) noAnswer(o *Observation, err error) {
	o.Cloud.Problem = problemOf(o.Proxy.Spec.Provider, err)
	if !errors.Is(err, errResting) {
		h.opts.Log.Warn("cloud adapter did not tell", "proxy", o.Proxy.Name, "namespace", o.Proxy.Namespace, "provider", o.Proxy.Spec.Provider, "err", short(err.Error()))
	}
}

// problemOf words an error for the status. What the network said stays in the
// log: it differs from call to call.
func problemOf(provider string, err error) *trouble {
	said := ""
	var status *adapter.StatusError
	if errors.As(err, &status) {
		said = short(status.Body.Message)
	}
	switch {
	case errors.Is(err, adapter.ErrUnknownProvider):
		return &trouble{v1alpha1.ReasonUnknownProvider, fmt.Sprintf(
			"the cloud adapter's provider config has no provider %q: give it the file that webhooks read, and restart it", provider)}
	case errors.Is(err, adapter.ErrDeleted):
		return &trouble{v1alpha1.ReasonPermanentError, "the cloud adapter was told to delete this Proxy's instance and makes no other one: delete the Proxy and create it anew"}
	case errors.Is(err, adapter.ErrInvalid):
		return &trouble{v1alpha1.ReasonPermanentError, "the cloud adapter refuses what the hooks ask: " + said}
	case errors.Is(err, adapter.ErrNotReady):
		return &trouble{v1alpha1.ReasonCloudAdapterUnavailable, "the cloud adapter cannot tell yet: " + said}
	case errors.Is(err, errNoAdapter):
		return &trouble{v1alpha1.ReasonCloudAdapterUnavailable, "webhooks were started without --cloud-socket, and so without the cloud adapter"}
	}
	return &trouble{v1alpha1.ReasonCloudAdapterUnavailable, "the cloud adapter does not answer; its log and that of webhooks say more"}
}
