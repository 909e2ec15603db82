package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
)

// Keys of our child kinds in hook requests.
const (
	podKind   = "Pod.v1"
	probeKind = "ProxyProbe." + v1alpha1.Group + "/" + v1alpha1.Version
)

// observe builds the observation of a request: the Proxy and its children, the
// wanted instance, the cloud adapter's reply and the replacement budget. A child
// that cannot be decoded is an error and not an absent child. Errors of decoding
// unwrap to metacontroller.ErrBadRequest or errUnknownKind.
func (h *Hooks) observe(ctx context.Context, req *metacontroller.Request) (*proxy.Observation, error) {
	p, err := decodeProxy(req.Parent)
	if err != nil {
		return nil, err
	}
	o := &proxy.Observation{
		Proxy:      p,
		Finalizing: req.Finalizing,
		CloudInit:  resolveCloudInit(p, req.Related, h.opts.CloudInitSecrets),
		Timing:     h.opts.Timing,
		Now:        h.opts.Clock.Now(),
	}
	if provider := h.opts.Providers[p.Spec.Provider]; provider != nil {
		o.Provider = &provider.Provider
	}
	if o.Instance, err = decodePod(p, req.Children[podKind]); err != nil {
		return nil, err
	}
	if o.Probe, err = decodeProbe(p, req.Children[probeKind]); err != nil {
		return nil, err
	}
	if o.Strays, err = decodeStrays(p, req.Children); err != nil {
		return nil, err
	}
	if o.ExpectsVM() {
		o.Instance = proxy.VMFromStatus(&p.Status)
	}
	o.Wanted = o.Want()
	o.Instance, o.Adapter = h.adapter.observe(ctx, o)
	o.InBudget, o.MayReplace = h.budget.observe(o)
	return o, nil
}

// metaOf is the metadata of our own kinds. Most of an object's bytes are in
// managedFields, which decoding skips.
type metaOf struct {
	metav1.ObjectMeta `json:",inline"`
	ManagedFields     skipped `json:"managedFields"`
}

type skipped struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*skipped) UnmarshalJSON([]byte) error { return nil }

// decodeProxy decodes a parent. Unknown fields are ignored: the CRD may be newer.
func decodeProxy(raw json.RawMessage) (*v1alpha1.Proxy, error) {
	var p struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metaOf               `json:"metadata"`
		Spec            v1alpha1.ProxySpec   `json:"spec"`
		Status          v1alpha1.ProxyStatus `json:"status"`
	}
	if err := decodeObject("parent", raw, &p); err != nil {
		return nil, err
	}
	out := &v1alpha1.Proxy{TypeMeta: p.TypeMeta, ObjectMeta: p.Metadata.ObjectMeta, Spec: p.Spec, Status: p.Status}
	if out.Kind != "Proxy" || out.Namespace == "" || out.Name == "" || out.UID == "" {
		return nil, fmt.Errorf("parent: want a Proxy with namespace, name and uid, got kind %q: %w", out.Kind, metacontroller.ErrBadRequest)
	}
	return out, nil
}

func decodeObject(what string, raw json.RawMessage, into any) error {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, into); err != nil {
		return fmt.Errorf("%s: %w: %w", what, metacontroller.ErrBadRequest, err)
	}
	return nil
}

func decodePod(p *v1alpha1.Proxy, pods map[string]json.RawMessage) (proxy.Instance, error) {
	name := v1alpha1.InstanceName(p.UID)
	raw, found := pods[metacontroller.Key(p.Namespace, name)]
	if !found {
		return proxy.Absent(), nil
	}
	var pod proxy.Pod
	if err := decodeObject("pod "+name, raw, &pod); err != nil {
		return proxy.Instance{}, err
	}
	return pod.Instance(), nil
}

func decodeProbe(p *v1alpha1.Proxy, probes map[string]json.RawMessage) (*v1alpha1.ProxyProbe, error) {
	raw, found := probes[metacontroller.Key(p.Namespace, p.Name)]
	if !found {
		return nil, nil
	}
	var probe struct {
		Metadata metaOf                    `json:"metadata"`
		Spec     v1alpha1.ProxyProbeSpec   `json:"spec"`
		Status   v1alpha1.ProxyProbeStatus `json:"status"`
	}
	if err := decodeObject("proxyprobe "+p.Name, raw, &probe); err != nil {
		return nil, err
	}
	return &v1alpha1.ProxyProbe{ObjectMeta: probe.Metadata.ObjectMeta, Spec: probe.Spec, Status: probe.Status}, nil
}

// errUnknownKind: there are children of a kind that this release does not create.
// An answer without them would delete them.
var errUnknownKind = errors.New("a child kind that these webhooks do not know")

// decodeStrays decodes the children that are neither the instance nor the probe,
// in a fixed order.
func decodeStrays(p *v1alpha1.Proxy, children metacontroller.Objects) ([]proxy.Stray, error) {
	ours := map[string]string{
		podKind:   metacontroller.Key(p.Namespace, v1alpha1.InstanceName(p.UID)),
		probeKind: metacontroller.Key(p.Namespace, p.Name),
	}
	var strays []proxy.Stray
	for _, kind := range slices.Sorted(maps.Keys(children)) {
		if ours[kind] == "" && len(children[kind]) > 0 {
			return nil, fmt.Errorf("%w: %q, with %d children; install the CompositeController and the webhooks of one release", errUnknownKind, kind, len(children[kind]))
		}
		for _, key := range slices.Sorted(maps.Keys(children[kind])) {
			if key == ours[kind] {
				continue
			}
			stray, err := decodeStray(kind, key, children[kind][key])
			if err != nil {
				return nil, err
			}
			strays = append(strays, stray)
		}
	}
	return strays, nil
}

func decodeStray(kind, key string, raw json.RawMessage) (proxy.Stray, error) {
	var child struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta `json:"metadata"`
		Spec            map[string]any    `json:"spec"`
	}
	if err := decodeObject(kind+" "+key, raw, &child); err != nil {
		return proxy.Stray{}, err
	}
	if is := child.Kind + "." + child.APIVersion; is != kind {
		return proxy.Stray{}, fmt.Errorf("%s %s: is a %q: %w", kind, key, is, metacontroller.ErrBadRequest)
	}
	obj := identity(child.APIVersion, child.Kind, child.Metadata.Namespace, child.Metadata.Name)
	if kind != podKind && child.Spec != nil {
		obj.Object["spec"] = prune(child.Spec)
	}
	return proxy.Stray{Object: obj, Terminating: child.Metadata.DeletionTimestamp != nil}, nil
}
