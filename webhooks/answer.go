package webhooks

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
)

// answer converts a decision into a hook answer. It changes nothing.
func (h *Hooks) answer(o *proxy.Observation, d *proxy.Decision) (*metacontroller.Response, error) {
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&d.Status)
	if err != nil {
		return nil, fmt.Errorf("convert status: %w", err)
	}
	children, err := h.children(o, d)
	if err != nil {
		return nil, err
	}
	return &metacontroller.Response{
		Status:             status,
		Children:           children,
		ResyncAfterSeconds: d.ResyncAfter.Seconds(),
		Finalized:          d.Finalized,
	}, nil
}

// children are the children that the answer lists. VMs are no children.
func (h *Hooks) children(o *proxy.Observation, d *proxy.Decision) ([]*unstructured.Unstructured, error) {
	children := []*unstructured.Unstructured{}
	switch {
	case d.Instance == proxy.MakeInstance && !o.Provider.IsCloud():
		children = append(children, h.opts.Providers[o.Proxy.Spec.Provider].Pods.Pod(o.Proxy, d.SpecHash))
	case d.Instance == proxy.KeepInstance && o.Instance.IsLivePod():
		children = append(children, identity("v1", "Pod", o.Proxy.Namespace, v1alpha1.InstanceName(o.Proxy.UID)))
	}
	if d.Probe != nil {
		probe, err := probeChild(o.Proxy, d.Probe)
		if err != nil {
			return nil, err
		}
		children = append(children, probe)
	}
	for _, s := range o.Strays {
		if d.KeepStrays && !s.Terminating {
			children = append(children, s.Object)
		}
	}
	return children, nil
}

// probeChild is the ProxyProbe of p, under the same name. It has no nulls and empty
// values: Metacontroller compares an answer with what the API server stores, and a
// field that the server drops would differ at every sync.
func probeChild(p *v1alpha1.Proxy, spec *v1alpha1.ProxyProbeSpec) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return nil, fmt.Errorf("convert the ProxyProbe's spec: %w", err)
	}
	if hc, ok := content["healthCheck"].(map[string]any); ok {
		hc["interval"], hc["timeout"] = durationText(spec.HealthCheck.Interval.Duration), durationText(spec.HealthCheck.Timeout.Duration)
	}
	child := identity(v1alpha1.GroupVersion().String(), "ProxyProbe", p.Namespace, p.Name)
	child.Object["spec"] = prune(content)
	return child, nil
}

// durationText formats a duration for the CRD's pattern, in whole units. Go formats
// 1500ms as 1.5s, which the API server refuses.
func durationText(d time.Duration) string {
	if d%time.Second == 0 {
		return d.String()
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}

// prune returns v without nulls, empty maps and empty lists below any map; nil
// when nothing is left. Elements of lists stay, since their positions count.
func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if v[key] = prune(value); v[key] == nil {
				delete(v, key)
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		for i := range v {
			if pruned := prune(v[i]); pruned != nil {
				v[i] = pruned
			}
		}
		if len(v) == 0 {
			return nil
		}
	}
	return v
}

// identity is a child without content. Under the update method OnDelete it keeps an
// existing object; the API server refuses to create one from it.
func identity(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetAPIVersion(apiVersion)
	obj.SetKind(kind)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj
}

// observedChild names a child that is not being deleted.
type observedChild struct {
	kind, name string
	stray      bool
}

// deleted are the observed, living children that resp does not list.
func deleted(o *proxy.Observation, resp *metacontroller.Response) []observedChild {
	listed := map[[2]string]bool{}
	for _, c := range resp.Children {
		listed[[2]string{c.GetKind(), c.GetName()}] = true
	}
	var out []observedChild
	add := func(alive bool, kind, name string, stray bool) {
		if alive && !listed[[2]string{kind, name}] {
			out = append(out, observedChild{kind, name, stray})
		}
	}
	add(o.Instance.IsLivePod(), "Pod", v1alpha1.InstanceName(o.Proxy.UID), false)
	add(o.HasProbe(), "ProxyProbe", o.Proxy.Name, false)
	for _, s := range o.Strays {
		add(!s.Terminating, s.Object.GetKind(), s.Object.GetName(), true)
	}
	return out
}

func provisionedReason(d *proxy.Decision) string {
	if c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionProvisioned); c != nil {
		return c.Reason
	}
	return ""
}
