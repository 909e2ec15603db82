package standin

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// customizeAnswer is the answer of a customize hook with all that hook API v2
// allows in it.
type customizeAnswer struct {
	RelatedResources []*relatedRule `json:"relatedResources"`
}

// relatedRule selects related objects: by names, or by labels, in one namespace
// or in all.
type relatedRule struct {
	metacontroller.ResourceRef `json:",inline"`
	LabelSelector              *metav1.LabelSelector `json:"labelSelector"`
	NamespaceSelector          *metav1.LabelSelector `json:"namespaceSelector"`
	Namespace                  string                `json:"namespace"`
	Names                      []string              `json:"names"`
}

// validate refuses rules that Metacontroller refuses, and namespaceSelector,
// which nothing of ours uses.
func (r *relatedRule) validate() error {
	switch {
	case r == nil:
		return errors.New("is null, which crashes the real Metacontroller")
	case r.NamespaceSelector != nil:
		return errors.New("has a namespaceSelector, which the local engine does not know")
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

// matches reports whether the rule, which is valid, selects obj of its resource.
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
