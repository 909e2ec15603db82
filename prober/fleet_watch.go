package prober

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/schedule"
)

// The watch fills the runner instead of a cache of whole objects: a monitor takes a
// tenth of the memory of a ProxyProbe.
var _ cache.TransformingStore = (*runner)(nil)

// Transformer drops the fields that the runner does not use while a list is still
// being decoded, so that the whole list takes less memory. Messages of plain successes,
// which most are, are among them.
func (r *runner) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if p, ok := obj.(*v1alpha1.ProxyProbe); ok {
			p.ManagedFields, p.Labels, p.Annotations = nil, nil, nil
			if p.Status.Reason == string(probe.ReasonProbeSucceeded) {
				p.Status.Message = ""
			}
		}
		return obj, nil
	}
}

// Add is Update.
func (r *runner) Add(obj any) error { return r.Update(obj) }

// Update reconciles a ProxyProbe that is new or changed.
func (r *runner) Update(obj any) error {
	p, err := proxyProbe(obj)
	if err == nil {
		r.reconcile(p)
	}
	return err
}

// Delete removes the monitor of a deleted ProxyProbe.
func (r *runner) Delete(obj any) error {
	p, err := proxyProbe(obj)
	if err == nil {
		r.remove(keyOf(p))
	}
	return err
}

// Replace reconciles the whole fleet, and removes the monitors that are not in it.
func (r *runner) Replace(list []any, _ string) error {
	listed := make(map[types.NamespacedName]bool, len(list))
	for _, obj := range list {
		p, err := proxyProbe(obj)
		if err != nil {
			return err
		}
		listed[keyOf(p)] = true
		r.reconcile(p)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, m := range r.monitors {
		if !listed[key] {
			r.drop(m)
		}
	}
	if r.ready() != nil {
		close(r.synced)
	}
	return nil
}

// Resync does nothing: the runner follows its own schedule.
func (r *runner) Resync() error { return nil }

func proxyProbe(obj any) (*v1alpha1.ProxyProbe, error) {
	p, ok := obj.(*v1alpha1.ProxyProbe)
	if !ok {
		return nil, fmt.Errorf("the watch of ProxyProbes returned a %T", obj)
	}
	return p, nil
}

func keyOf(p *v1alpha1.ProxyProbe) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// shardUID returns the UID that assigns a ProxyProbe to a shard: its Proxy's, or its
// own when it has no owner.
func shardUID(p *v1alpha1.ProxyProbe) types.UID {
	if owner := metav1.GetControllerOf(p); owner != nil {
		return owner.UID
	}
	return p.UID
}

func (r *runner) reconcile(p *v1alpha1.ProxyProbe) {
	key := keyOf(p)
	if p.DeletionTimestamp != nil || !r.shard.Owns(shardUID(p)) {
		r.remove(key)
		return
	}
	s := specOf(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	m, now := r.monitors[key], r.clock.Now()
	switch {
	case m == nil || m.uid != p.UID:
		r.drop(m)
		m = r.adopt(p, s)
	case !m.spec.sameInstance(&s):
		m.restart(s, now)
		r.outage.Remove(key)
	default:
		r.due.Remove(&m.place) // it may change its lane
		m.edit(s, now)
		if m.health.ReconcileStatus(p, s.instanceID, now) {
			m.place.Slow = m.health.Slow(schedule.SlowAfter)
			r.outage.Clear(key)
		}
	}
	r.outage.SetStanding(key, m.standing())
	if p.Status.Reason == string(probe.ReasonProbeTargetDown) {
		r.outage.Announced(p.Status.Message, now)
	}
	if m.cancel == nil { // else finish will push it
		r.due.Push(&m.place)
	}
	notify(r.wake)
}

// adopt makes a monitor. Without a verdict it is due at once; with a verdict of a
// predecessor at a random time within its interval, so that a restart does not probe
// the whole fleet at once.
func (r *runner) adopt(p *v1alpha1.ProxyProbe, s spec) *monitor {
	now := r.clock.Now()
	m := &monitor{key: keyOf(p), uid: p.UID, spec: s}
	m.place.Value = m
	if m.health.Seed(p, s.instanceID, now) {
		m.place.Postpone(now.Add(r.jitter(s.interval())))
	} else {
		m.place.Reset(now)
	}
	m.place.Slow = m.health.Slow(schedule.SlowAfter)
	r.monitors[m.key] = m
	return m
}

func (r *runner) remove(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(r.monitors[key])
}

// drop removes a monitor and cancels its probe. It accepts nil.
func (r *runner) drop(m *monitor) {
	if m == nil {
		return
	}
	if m.cancel != nil {
		m.cancel()
	}
	r.due.Remove(&m.place)
	r.outage.Remove(m.key)
	delete(r.monitors, m.key)
}
