package prober

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// The engine is what the watch fills, in place of a cache of whole objects: a
// target is a tenth of a ProxyProbe.
var _ cache.TransformingStore = (*engine)(nil)

// Transformer has the watch throw away, before it has a whole list together, what
// the engine has no use for.
func (e *engine) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if p, ok := obj.(*v1alpha1.ProxyProbe); ok {
			p.ManagedFields, p.Labels, p.Annotations, p.Status.Message = nil, nil, nil, ""
		}
		return obj, nil
	}
}

// Add takes in a ProxyProbe that appeared.
func (e *engine) Add(obj any) error { return e.Update(obj) }

// Update takes in a ProxyProbe that appeared or changed.
func (e *engine) Update(obj any) error {
	p, err := proxyProbe(obj)
	if err == nil {
		e.take(p)
	}
	return err
}

// Delete forgets a ProxyProbe that is gone.
func (e *engine) Delete(obj any) error {
	p, err := proxyProbe(obj)
	if err == nil {
		e.forget(keyOf(p))
	}
	return err
}

// Replace takes in the whole fleet and forgets what is not in it.
func (e *engine) Replace(list []any, _ string) error {
	listed := make(map[types.NamespacedName]bool, len(list))
	for _, obj := range list {
		p, err := proxyProbe(obj)
		if err != nil {
			return err
		}
		listed[keyOf(p)] = true
		e.take(p)
	}
	for _, key := range e.keys() {
		if !listed[key] {
			e.forget(key)
		}
	}
	if e.ready() != nil {
		close(e.known)
	}
	return nil
}

// Resync has nothing to do: the engine acts by its own clock.
func (e *engine) Resync() error { return nil }

func proxyProbe(obj any) (*v1alpha1.ProxyProbe, error) {
	p, ok := obj.(*v1alpha1.ProxyProbe)
	if !ok {
		return nil, fmt.Errorf("the watch of ProxyProbes brought a %T", obj)
	}
	return p, nil
}

func keyOf(p *v1alpha1.ProxyProbe) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// shardUID is the UID by which shards split the fleet: the Proxy's, or the
// ProxyProbe's own when it has no owner.
func shardUID(p *v1alpha1.ProxyProbe) types.UID {
	if owner := metav1.GetControllerOf(p); owner != nil {
		return owner.UID
	}
	return p.UID
}

func (e *engine) keys() []types.NamespacedName {
	e.mu.Lock()
	defer e.mu.Unlock()
	keys := make([]types.NamespacedName, 0, len(e.targets))
	for key := range e.targets {
		keys = append(keys, key)
	}
	return keys
}

func (e *engine) take(p *v1alpha1.ProxyProbe) {
	key := keyOf(p)
	if p.DeletionTimestamp != nil || !e.shard.Owns(shardUID(p)) {
		e.forget(key)
		return
	}
	o := orderOf(p)
	e.mu.Lock()
	defer e.mu.Unlock()
	t, now := e.targets[key], e.clock.Now()
	switch {
	case t == nil || t.uid != p.UID:
		e.drop(t)
		t = e.adopt(p, o)
	case !t.order.sameInstance(&o):
		t.restart(o, now)
	default:
		e.due.remove(t) // it may change its lane
		t.edit(o, now)
		t.heed(p, now)
	}
	if t.cancel == nil { // else finish will push it
		e.due.push(t)
	}
	e.nudge()
}

// adopt makes a target. Without a verdict it is due at once; with one that a
// predecessor left, at a random time within its interval, so that a restart does
// not probe the whole fleet at once.
func (e *engine) adopt(p *v1alpha1.ProxyProbe, o order) *target {
	now := e.clock.Now()
	t := &target{key: keyOf(p), uid: p.UID, order: o, index: -1, due: now, spread: true}
	if t.seed(p, now) {
		t.due, t.spread = now.Add(e.jitter(o.interval())), false
	}
	e.targets[t.key] = t
	return t
}

func (e *engine) forget(key types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drop(e.targets[key])
}

// drop forgets a target, and cuts off its probe. It accepts nil.
func (e *engine) drop(t *target) {
	if t == nil {
		return
	}
	if t.cancel != nil {
		t.cancel()
	}
	e.due.remove(t)
	delete(e.targets, t.key)
}
