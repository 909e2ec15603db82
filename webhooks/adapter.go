package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
)

// Adapter is the cloud adapter. It receives the wanted state, replies at once with
// the observed state, and works in the background. Errors unwrap to the classes of
// package adapter. Both methods are idempotent.
type Adapter interface {
	// Put states which instance is wanted.
	Put(ctx context.Context, provider, name string, req adapter.PutRequest) (adapter.Instance, error)
	// Delete states that no instance of this UID is wanted. Only
	// adapter.StateAbsent confirms that there is none.
	Delete(ctx context.Context, provider, name, uid, providerID string) (adapter.Instance, error)
}

const (
	// adapterTimeout bounds all adapter requests of one hook call. The adapter replies
	// from memory, and Metacontroller times out after 10 s.
	adapterTimeout = 2 * time.Second
	// adapterCooldown is how long requests are skipped after one timed out. An adapter
	// that hangs must not block all of Metacontroller's few workers, which serve Pods
	// as well.
	adapterCooldown = 5 * time.Second
)

// adapterClient sends the hooks' requests to the adapter.
type adapterClient struct {
	api     Adapter // nil when there is none
	clock   clock.PassiveClock
	metrics *metrics
	log     *slog.Logger

	cooldown atomic.Int64 // its end, in Unix nanoseconds
}

var (
	errNoAdapter = fmt.Errorf("%w: webhooks were started without --cloud-socket", adapter.ErrUnavailable)
	errCooldown  = fmt.Errorf("%w: skipped, the last request timed out", adapter.ErrUnavailable)
)

// request makes one call, unless there is no adapter or it is in cooldown.
func (c *adapterClient) request(ctx context.Context, method string, call func(context.Context) (adapter.Instance, error)) (adapter.Instance, error) {
	if c.api == nil {
		return adapter.Instance{}, errNoAdapter
	}
	start := c.clock.Now()
	if start.UnixNano() < c.cooldown.Load() {
		c.metrics.adapterRequest(method, "skipped", 0)
		return adapter.Instance{}, errCooldown
	}
	got, err := call(ctx)
	result := "ok"
	if err != nil {
		result, _, _ = classify("", err)
	}
	c.metrics.adapterRequest(method, result, c.clock.Since(start))
	if errors.Is(err, context.DeadlineExceeded) {
		c.cooldown.Store(c.clock.Now().Add(adapterCooldown).UnixNano())
	}
	return got, err
}

// observe returns the instance of o and the rest of the adapter's reply. It sends
// a request only about VMs.
func (c *adapterClient) observe(ctx context.Context, o *proxy.Observation) (proxy.Instance, proxy.AdapterReply) {
	switch {
	case o.Proxy.Spec.Mode != v1alpha1.ModeManaged:
	case o.Finalizing:
		return c.observeDeletion(ctx, o)
	case o.Provider.IsCloud():
		return c.observeVM(ctx, o)
	}
	return o.Instance, proxy.AdapterReply{}
}

// observeVM puts the wanted VM. It sends nothing while the wanted VM is unknown or
// was refused permanently.
func (c *adapterClient) observeVM(ctx context.Context, o *proxy.Observation) (proxy.Instance, proxy.AdapterReply) {
	unavailable := func(message string) (proxy.Instance, proxy.AdapterReply) {
		return o.Instance, proxy.AdapterReply{Blocked: &proxy.BlockReason{Reason: v1alpha1.ReasonCloudAdapterUnavailable, Message: message}}
	}
	switch {
	case o.Wanted.Blocked != nil:
		return o.Instance, proxy.AdapterReply{}
	case o.Latched():
		return proxy.Absent(), proxy.AdapterReply{}
	case o.Proxy.DeletionTimestamp != nil:
		return unavailable("the Proxy is being deleted; no instance is created any more")
	case !slices.Contains(o.Proxy.Finalizers, metacontroller.Finalizer):
		return unavailable(fmt.Sprintf("the Proxy lacks the finalizer %s, without which a VM could outlive it: the CompositeController must have its finalize hook", metacontroller.Finalizer))
	}
	got, err := c.put(ctx, o, o.ReplaceBegun())
	if err == nil {
		var in proxy.Instance
		if in, err = proxy.VMInstance(got); err == nil {
			return in, proxy.AdapterReply{Failure: got.Failure}
		}
	}
	return o.Instance, c.failed(o, err)
}

func (c *adapterClient) put(ctx context.Context, o *proxy.Observation, replace string) (adapter.Instance, error) {
	return c.request(ctx, "put", func(ctx context.Context) (adapter.Instance, error) {
		return c.api.Put(ctx, o.Proxy.Spec.Provider, v1alpha1.InstanceName(o.Proxy.UID), o.PutRequest(replace))
	})
}

// replace sends a replacement that was decided just now. After a failure the next
// hook call repeats it: the status then shows the replacement.
func (c *adapterClient) replace(ctx context.Context, o *proxy.Observation, d *proxy.Decision) {
	if d.Replace == "" || d.Replace == o.ReplaceBegun() {
		return
	}
	c.log.Info("instance is to be replaced", "proxy", o.Proxy.Name, "namespace", o.Proxy.Namespace, "provider", o.Proxy.Spec.Provider, "instanceID", d.Replace)
	if _, err := c.put(ctx, o, d.Replace); err != nil {
		c.log.Warn("cloud adapter did not accept a replacement; the next call retries", "proxy", o.Proxy.Name, "namespace", o.Proxy.Namespace, "err", proxy.Truncate(err.Error()))
	}
}

// observeDeletion deletes the VM of a finalized Proxy. The request has the Pods.
func (c *adapterClient) observeDeletion(ctx context.Context, o *proxy.Observation) (proxy.Instance, proxy.AdapterReply) {
	if !o.NeedsVMDeletion() {
		return o.Instance, proxy.AdapterReply{}
	}
	if o.Proxy.Annotations[v1alpha1.AnnotationAbandon] == v1alpha1.ValueTrue {
		return proxy.Absent(), proxy.AdapterReply{Abandoned: true}
	}
	status, providerID := &o.Proxy.Status, ""
	if o.NamesVM() {
		providerID = status.ProviderID
	}
	got, err := c.request(ctx, "delete", func(ctx context.Context) (adapter.Instance, error) {
		return c.api.Delete(ctx, o.Proxy.Spec.Provider, v1alpha1.InstanceName(o.Proxy.UID), string(o.Proxy.UID), providerID)
	})
	in := proxy.Instance{}
	if err == nil {
		in, err = proxy.VMInstance(got)
	}
	switch {
	case err == nil && in.Exists():
		in.Terminating = true
		in.ProviderID, in.ID = cmp.Or(in.ProviderID, providerID), cmp.Or(in.ID, status.InstanceID)
		return in, proxy.AdapterReply{Failure: got.Failure}
	case err == nil:
		return in, proxy.AdapterReply{}
	case o.Provider == nil && !o.NamesVM() && !o.RequestedVM() && (errors.Is(err, adapter.ErrUnknownProvider) || c.api == nil):
		return proxy.Absent(), proxy.AdapterReply{} // that provider never existed
	}
	return proxy.VMFromStatus(status), c.failed(o, err)
}

// failed logs a failed request and returns its block reason.
func (c *adapterClient) failed(o *proxy.Observation, err error) proxy.AdapterReply {
	if !errors.Is(err, errCooldown) {
		c.log.Warn("cloud adapter gave no state", "proxy", o.Proxy.Name, "namespace", o.Proxy.Namespace, "provider", o.Proxy.Spec.Provider, "err", proxy.Truncate(err.Error()))
	}
	_, reason, message := classify(o.Proxy.Spec.Provider, err)
	return proxy.AdapterReply{Blocked: &proxy.BlockReason{Reason: reason, Message: message}}
}

// classify maps an error to the metric's result and to a condition. Network errors
// stay in the log: their text differs from call to call.
func classify(provider string, err error) (result, reason, message string) {
	text := ""
	if status, ok := errors.AsType[*adapter.StatusError](err); ok {
		text = proxy.Truncate(status.Body.Message)
	}
	switch {
	case errors.Is(err, adapter.ErrUnknownProvider):
		return "unknown_provider", v1alpha1.ReasonUnknownProvider,
			fmt.Sprintf("the cloud adapter's provider config has no provider %q: give it the file that webhooks read, and restart it", provider)
	case errors.Is(err, adapter.ErrDeleted):
		return "deleted", v1alpha1.ReasonPermanentError,
			"the cloud adapter has deleted this Proxy's instance and creates no other one: delete the Proxy and create it anew"
	case errors.Is(err, adapter.ErrInvalid):
		return "invalid", v1alpha1.ReasonPermanentError, "the cloud adapter refuses the hooks' request: " + text
	case errors.Is(err, adapter.ErrNotReady):
		return "not_ready", v1alpha1.ReasonCloudAdapterUnavailable, "the cloud adapter is not ready: " + text
	case errors.Is(err, errNoAdapter):
		return "", v1alpha1.ReasonCloudAdapterUnavailable, "webhooks were started without --cloud-socket, and so without the cloud adapter"
	}
	return "unavailable", v1alpha1.ReasonCloudAdapterUnavailable, "the cloud adapter does not answer; see its log and that of webhooks"
}
