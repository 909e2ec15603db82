package webhooks

import (
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// observedChild names a child that is alive.
type observedChild struct {
	kind, name string
	stray      bool
}

// alive are the observed children that are not being deleted already.
func (o *Observation) alive() []observedChild {
	var out []observedChild
	if o.podAlive() {
		out = append(out, observedChild{kind: "Pod", name: v1alpha1.InstanceName(o.Proxy.UID)})
	}
	if o.Probe != nil && o.Probe.DeletionTimestamp == nil {
		out = append(out, observedChild{kind: "ProxyProbe", name: o.Proxy.Name})
	}
	for _, s := range o.Strays {
		if !s.Terminating {
			out = append(out, observedChild{kind: s.Object.GetKind(), name: s.Object.GetName(), stray: true})
		}
	}
	return out
}

// podAlive reports whether the instance is a Pod that is not being deleted.
func (o *Observation) podAlive() bool {
	return o.Instance.exists() && !o.Instance.VM && !o.Instance.Terminating
}

// removed are the living children that resp does not list.
func removed(o *Observation, resp *metacontroller.Response) []observedChild {
	listed := map[observedChild]bool{}
	for _, c := range resp.Children {
		listed[observedChild{kind: c.GetKind(), name: c.GetName()}] = true
	}
	var out []observedChild
	for _, c := range o.alive() {
		if !listed[observedChild{kind: c.kind, name: c.name}] {
			out = append(out, c)
		}
	}
	return out
}
