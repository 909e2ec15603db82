package standin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// rulesTTL is how long an answer of the customize hook is believed.
const rulesTTL = 20 * time.Minute

// errRelatedNotSynced: the informer of a related resource has just been started.
// The sync is retried, without an event. It stays so when listing is forbidden.
var errRelatedNotSynced = errors.New("related objects are not listed yet")

// rulesKey: labels, annotations and status do not change a generation, so that
// rules must not depend on them.
type rulesKey struct {
	uid        types.UID
	generation int64
}

type cachedRules struct {
	rules   []*relatedRule
	expires time.Time
}

// relater knows which objects are related to which parents. Without a customize
// hook none are.
type relater struct {
	manifest  json.RawMessage
	hook      *hook
	resources *resources
	clock     clock.PassiveClock
	// watch starts an informer whose events queue the parents concerned.
	watch func(*resource) *watched

	mu       sync.Mutex
	rules    map[rulesKey]cachedRules
	watching map[schema.GroupVersionResource]*watched
}

// rulesFor asks the customize hook for the rules of parent, unless it has been
// asked about this generation in the last 20 minutes.
func (r *relater) rulesFor(ctx context.Context, parent *object) ([]*relatedRule, error) {
	if r.hook == nil {
		return nil, nil
	}
	key := rulesKey{parent.GetUID(), parent.GetGeneration()}
	if rules, ok := r.cached(key); ok {
		return rules, nil
	}
	encoded, err := parent.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", describe(parent), err)
	}
	var answer customizeAnswer
	if err := r.hook.call(ctx, &metacontroller.CustomizeRequest{Controller: r.manifest, Parent: encoded}, &answer); err != nil {
		return nil, err
	}
	for i, rule := range answer.RelatedResources {
		if err := rule.validate(); err != nil {
			return nil, fmt.Errorf("customize hook: rule %d %w", i, err)
		}
	}
	r.remember(key, answer.RelatedResources)
	return answer.RelatedResources, nil
}

func (r *relater) cached(key rulesKey) ([]*relatedRule, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry, ok := r.rules[key]
	return entry.rules, ok && r.clock.Now().Before(entry.expires)
}

func (r *relater) remember(key rulesKey, rules []*relatedRule) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for old, entry := range r.rules {
		if !now.Before(entry.expires) {
			delete(r.rules, old)
		}
	}
	r.rules[key] = cachedRules{rules: rules, expires: now.Add(rulesTTL)}
}

// objects returns what is related to parent; a kind with a rule is present, also
// when nothing matches.
func (r *relater) objects(ctx context.Context, parent *object) (objectMap, error) {
	rules, err := r.rulesFor(ctx, parent)
	if err != nil {
		return nil, err
	}
	related := objectMap{}
	for _, rule := range rules {
		res, err := r.resources.byRef(rule.ResourceRef)
		if err != nil {
			return nil, err
		}
		watched := r.ensureWatched(res)
		if !watched.synced() {
			return nil, fmt.Errorf("%w: %s", errRelatedNotSynced, rule.Resource)
		}
		related.addKind(res.gvk)
		for _, candidate := range watched.store.List() {
			if obj := candidate.(*object); rule.matches(obj, res.namespaced) {
				related.add(obj)
			}
		}
	}
	return related, nil
}

func (r *relater) ensureWatched(res *resource) *watched {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watching[res.gvr] == nil {
		r.watching[res.gvr] = r.watch(res)
	}
	return r.watching[res.gvr]
}

// concerns reports whether one of the objects, a related one before and after a
// change, is related to parent. Rules that are not cached are asked for.
func (r *relater) concerns(ctx context.Context, parent *object, changed ...*object) (bool, error) {
	rules, err := r.rulesFor(ctx, parent)
	if err != nil {
		return false, err
	}
	for _, rule := range rules {
		res, err := r.resources.byRef(rule.ResourceRef)
		if err != nil {
			return false, err
		}
		for _, obj := range changed {
			if obj.GroupVersionKind() == res.gvk && rule.matches(obj, res.namespaced) {
				return true, nil
			}
		}
	}
	return false, nil
}
