package prober

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// Client reads and patches ProxyProbes. It decodes into the Go types: unstructured maps
// of a large fleet would take ten times the memory.
type Client struct {
	rest     rest.Interface
	params   runtime.ParameterCodec
	resource string
}

// NewClient returns a Client on a copy of cfg. It fails when cfg is invalid, and does
// not call the API server.
func NewClient(cfg *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register our types: %w", err)
	}
	gv := v1alpha1.GroupVersion()
	cfg = rest.CopyConfig(cfg)
	cfg.APIPath, cfg.GroupVersion = "/apis", &gv
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client for ProxyProbes: %w", err)
	}
	return &Client{
		rest:     client,
		params:   runtime.NewParameterCodec(scheme),
		resource: v1alpha1.ProxyProbeResource().Resource,
	}, nil
}

// ListWatch lists and watches the ProxyProbes of a namespace, "" for all. It logs
// errors, since the reflector retries without an end.
func (c *Client) ListWatch(namespace string, log *slog.Logger) cache.ListerWatcher {
	request := func(opts *metav1.ListOptions) *rest.Request {
		return c.rest.Get().NamespaceIfScoped(namespace, namespace != "").Resource(c.resource).VersionedParams(opts, c.params)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list := &v1alpha1.ProxyProbeList{}
			err := request(&opts).Do(ctx).Into(list)
			logFailure(ctx, log, "list", err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.Watch = true
			w, err := request(&opts).Watch(ctx)
			logFailure(ctx, log, "watch", err)
			return w, err
		},
	}
}

func logFailure(ctx context.Context, log *slog.Logger, verb string, err error) {
	if err != nil && ctx.Err() == nil {
		log.Warn("cannot read the ProxyProbes, will retry", "verb", verb, "err", err)
	}
}

// patchOp is one operation of a JSON patch (RFC 6902).
type patchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// PatchStatus replaces the status of the ProxyProbe with this UID, and returns the new
// resource version. When another object has the name by now, the API server rejects
// the whole patch: the test operation is the precondition. The resource version is not
// one: the prober is the only writer of this status, and a changed spec must not delay
// a verdict, which names its instance.
func (c *Client) PatchStatus(ctx context.Context, key types.NamespacedName, uid types.UID, st v1alpha1.ProxyProbeStatus) (string, error) {
	body, err := json.Marshal([]patchOp{
		{Op: "test", Path: "/metadata/uid", Value: uid},
		{Op: "add", Path: "/status", Value: st}, // replaces it where there is one
	})
	if err != nil {
		return "", fmt.Errorf("encode the status of %s: %w", key, err)
	}
	stored := &v1alpha1.ProxyProbe{}
	err = c.rest.Patch(types.JSONPatchType).Namespace(key.Namespace).Resource(c.resource).
		Name(key.Name).SubResource("status").Body(body).Do(ctx).Into(stored)
	if err != nil {
		return "", fmt.Errorf("patch the status of ProxyProbe %s with UID %s: %w", key, uid, err)
	}
	return stored.ResourceVersion, nil
}
