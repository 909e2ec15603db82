package standin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// rulesTTL is how long a response of the customize hook is cached.
const rulesTTL = 20 * time.Minute

// errRelatedNotSynced: the cache of a related resource is not synced. The sync is
// retried without an Event, for ever if listing is forbidden.
var errRelatedNotSynced = errors.New("related objects are not listed yet")

// rulesKey identifies the cached rules of a parent. Labels, annotations and status
// do not change the generation, so rules must not depend on them.
type rulesKey struct {
	uid        types.UID
	generation int64
}

// relater finds the related objects of parents by the rules of the customize
// hook. Without that hook there are none.
type relater struct {
	manifest  json.RawMessage
	hook      *hook
	resources *resources
	rules     *utilcache.Expiring
	// watch starts an informer whose events enqueue the related parents.
	watch func(*resource) *watched

	mu       sync.Mutex // of watching
	watching map[schema.GroupVersionResource]*watched
}

// rulesFor returns the rules of parent, cached or from the customize hook.
func (r *relater) rulesFor(ctx context.Context, parent *object) ([]*relatedRule, error) {
	if r.hook == nil {
		return nil, nil
	}
	key := rulesKey{parent.GetUID(), parent.GetGeneration()}
	if rules, ok := r.rules.Get(key); ok {
		return rules.([]*relatedRule), nil
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
	r.rules.Set(key, answer.RelatedResources, rulesTTL)
	return answer.RelatedResources, nil
}

// objects returns the related objects of parent. A kind with a rule is present
// even if no object matches.
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

// concerns reports whether one of the objects, the states before and after an
// update, is related to parent.
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

// customizeAnswer is a customize response with all fields of hook API v2.
type customizeAnswer struct {
	RelatedResources []*relatedRule `json:"relatedResources"`
}

// relatedRule selects related objects by names or by labels, in one namespace or
// in all.
type relatedRule struct {
	metacontroller.ResourceRef `json:",inline"`
	LabelSelector              *metav1.LabelSelector `json:"labelSelector"`
	NamespaceSelector          *metav1.LabelSelector `json:"namespaceSelector"`
	Namespace                  string                `json:"namespace"`
	Names                      []string              `json:"names"`
}

// validate rejects rules that Metacontroller rejects, and namespaceSelector, which
// our hooks do not use.
func (r *relatedRule) validate() error {
	switch {
	case r == nil:
		return errors.New("is null, which crashes the real Metacontroller")
	case r.NamespaceSelector != nil:
		return errors.New("has a namespaceSelector, which the stand-in does not support")
	case len(r.Names) > 0 && r.LabelSelector != nil:
		return errors.New("has both names and a labelSelector")
	}
	if _, err := r.selector(); err != nil {
		return fmt.Errorf("has a bad labelSelector: %w", err)
	}
	return nil
}

func (r *relatedRule) selector() (labels.Selector, error) {
	if r.LabelSelector == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(r.LabelSelector)
}

// matches reports whether a valid rule selects obj of its resource.
func (r *relatedRule) matches(obj *object, namespaced bool) bool {
	if namespaced && r.Namespace != "" && obj.GetNamespace() != r.Namespace {
		return false
	}
	if len(r.Names) > 0 && !slices.Contains(r.Names, obj.GetName()) {
		return false
	}
	selector, err := r.selector()
	return err == nil && selector.Matches(labels.Set(obj.GetLabels()))
}
