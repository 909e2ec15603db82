package webhooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// How hook requests key our child kinds.
const (
	podKind   = "Pod.v1"
	probeKind = "ProxyProbe." + v1alpha1.Group + "/" + v1alpha1.Version
)

// Stray is an observed child under a name that this release does not give.
type Stray struct {
	// Kind is the key of its kind in requests.
	Kind string
	// Object has its apiVersion, kind, namespace and name; the spec too where
	// Metacontroller would take a missing one for an edit.
	Object *unstructured.Unstructured
	// Terminating: its deletion is under way.
	Terminating bool
}

// observe reads the observation out of a request. Errors unwrap to
// metacontroller.ErrBadRequest or errUnknownKind: a child that cannot be read must not look like
// one that does not exist.
func observe(req *metacontroller.Request, providers Providers, secretsOn bool, now time.Time) (*Observation, error) {
	proxy, err := decodeProxy(req.Parent)
	if err != nil {
		return nil, err
	}
	o := &Observation{
		Proxy:      proxy,
		Finalizing: req.Finalizing,
		Provider:   providers[proxy.Spec.Provider],
		CloudInit:  resolveCloudInit(proxy, req.Related, secretsOn),
		Instance:   absentInstance(),
		Now:        now,
	}
	if err := o.readPod(req.Children[podKind]); err != nil {
		return nil, err
	}
	if err := o.readProbe(req.Children[probeKind]); err != nil {
		return nil, err
	}
	o.carryVM()
	return o, o.readStrays(req.Children)
}

// decodeProxy reads a parent. Fields that this release does not know are passed
// over: the CRD may be newer.
func decodeProxy(raw json.RawMessage) (*v1alpha1.Proxy, error) {
	var p observedProxy
	if err := decodeObject("parent", raw, &p); err != nil {
		return nil, err
	}
	proxy := &v1alpha1.Proxy{TypeMeta: p.TypeMeta, ObjectMeta: p.Metadata.ObjectMeta, Spec: p.Spec, Status: p.Status}
	if proxy.Kind != "Proxy" || proxy.Namespace == "" || proxy.Name == "" || proxy.UID == "" {
		return nil, fmt.Errorf("parent: want a Proxy with namespace, name and uid, got kind %q: %w", proxy.Kind, metacontroller.ErrBadRequest)
	}
	return proxy, nil
}

func decodeObject(what string, raw json.RawMessage, into any) error {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, into); err != nil {
		return fmt.Errorf("%s: %w: %w", what, metacontroller.ErrBadRequest, err)
	}
	return nil
}

func (o *Observation) readPod(pods map[string]json.RawMessage) error {
	name := v1alpha1.InstanceName(o.Proxy.UID)
	raw, found := pods[metacontroller.Key(o.Proxy.Namespace, name)]
	if !found {
		return nil
	}
	var pod observedPod
	if err := decodeObject("pod "+name, raw, &pod); err != nil {
		return err
	}
	o.Instance = podInstance(&pod)
	return nil
}

func (o *Observation) readProbe(probes map[string]json.RawMessage) error {
	raw, found := probes[metacontroller.Key(o.Proxy.Namespace, o.Proxy.Name)]
	if !found {
		return nil
	}
	var p observedProbe
	if err := decodeObject("proxyprobe "+o.Proxy.Name, raw, &p); err != nil {
		return err
	}
	o.Probe = &v1alpha1.ProxyProbe{ObjectMeta: p.Metadata.ObjectMeta, Spec: p.Spec, Status: p.Status}
	return nil
}

// errUnknownKind: there are children of a kind that this release does not make.
// Answering without them would delete them.
var errUnknownKind = errors.New("a child kind that these webhooks do not know")

// readStrays collects the children that are neither the instance nor the probe,
// in a fixed order.
func (o *Observation) readStrays(children metacontroller.Objects) error {
	ours := map[string]string{
		podKind:   metacontroller.Key(o.Proxy.Namespace, v1alpha1.InstanceName(o.Proxy.UID)),
		probeKind: metacontroller.Key(o.Proxy.Namespace, o.Proxy.Name),
	}
	for _, kind := range slices.Sorted(maps.Keys(children)) {
		if ours[kind] == "" && len(children[kind]) > 0 {
			return fmt.Errorf("%w: %q, of which there are %d; install the CompositeController and the webhooks of one release", errUnknownKind, kind, len(children[kind]))
		}
		for _, key := range slices.Sorted(maps.Keys(children[kind])) {
			if key == ours[kind] {
				continue
			}
			stray, err := readStray(kind, key, children[kind][key])
			if err != nil {
				return err
			}
			o.Strays = append(o.Strays, stray)
		}
	}
	return nil
}

func readStray(kind, key string, raw json.RawMessage) (Stray, error) {
	var child struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta `json:"metadata"`
		Spec            map[string]any    `json:"spec"`
	}
	if err := decodeObject(kind+" "+key, raw, &child); err != nil {
		return Stray{}, err
	}
	if is := child.Kind + "." + child.APIVersion; is != kind {
		return Stray{}, fmt.Errorf("%s %s: is a %q: %w", kind, key, is, metacontroller.ErrBadRequest)
	}
	obj := identity(child.APIVersion, child.Kind, child.Metadata.Namespace, child.Metadata.Name)
	if kind != podKind && child.Spec != nil {
		obj.Object["spec"] = prune(child.Spec)
	}
	return Stray{Kind: kind, Object: obj, Terminating: child.Metadata.DeletionTimestamp != nil}, nil
}
