package metacontroller

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ErrBadResponse: the response would make Metacontroller crash, fail, or delete
// children by mistake.
var ErrBadResponse = errors.New("unsafe hook response")

// Encode returns the bytes of a sync or finalize response, or an error that
// unwraps to ErrBadResponse for a response that must not be sent.
func (r *Response) Encode() ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadResponse, err)
	}
	w := wireResponse{r.Status, make([]map[string]any, len(r.Children)), r.ResyncAfterSeconds, r.Finalized}
	for i, child := range r.Children {
		w.Children[i] = child.Object
	}
	b, err := json.Marshal(w)
	if err != nil {
		return nil, fmt.Errorf("encode hook response: %w", err)
	}
	return b, nil
}

// wireResponse is a Response with its children as plain maps: the output of
// Unstructured.MarshalJSON would be scanned once more.
type wireResponse struct {
	Status             map[string]any   `json:"status"`
	Children           []map[string]any `json:"children"`
	ResyncAfterSeconds float64          `json:"resyncAfterSeconds"`
	Finalized          bool             `json:"finalized"`
}

func (r *Response) check() error {
	switch {
	case r == nil:
		return errors.New("nil response")
	case r.Status == nil:
		return errors.New("nil status")
	case r.Children == nil:
		return errors.New("nil children")
	case r.ResyncAfterSeconds < 0 || math.IsNaN(r.ResyncAfterSeconds) || math.IsInf(r.ResyncAfterSeconds, 0):
		return fmt.Errorf("resyncAfterSeconds %v", r.ResyncAfterSeconds)
	}
	if path, found := nullPath(r.Status); found {
		return fmt.Errorf("status%s is null, which the API server drops, so that the status would be reconciled for ever", path)
	}
	seen := map[string]bool{}
	for i, child := range r.Children {
		if err := checkChild(child); err != nil {
			return fmt.Errorf("child %d %w", i, err)
		}
		id := child.GetAPIVersion() + " " + child.GetKind() + " " + Key(child.GetNamespace(), child.GetName())
		if seen[id] {
			return fmt.Errorf("child %d repeats %s", i, id)
		}
		seen[id] = true
	}
	return nil
}

// serverFields of a child's metadata are set by the API server. In a response they
// would get into the last-applied annotation and differ at every reconcile.
var serverFields = []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields"}

func checkChild(child *unstructured.Unstructured) error {
	if child == nil {
		return errors.New("is nil, which crashes Metacontroller")
	}
	if child.GetAPIVersion() == "" || child.GetKind() == "" || child.GetName() == "" {
		return errors.New("lacks apiVersion, kind or name")
	}
	if _, found := child.Object["status"]; found {
		return errors.New("has a status, which the hook must not set")
	}
	for _, field := range serverFields {
		if _, found, _ := unstructured.NestedFieldNoCopy(child.Object, "metadata", field); found {
			return fmt.Errorf("has metadata.%s, which the API server sets", field)
		}
	}
	if _, _, err := unstructured.NestedStringMap(child.Object, "metadata", "labels"); err != nil {
		return fmt.Errorf("has bad labels: %w", err)
	}
	if path, found := nullPath(child.Object); found {
		return fmt.Errorf("has a null at %s, which the API server drops, so that it would be reconciled for ever", path)
	}
	return nil
}

// nullPath returns the path of a null below v, if there is one.
func nullPath(v any) (path string, found bool) {
	switch v := v.(type) {
	case nil:
		return "", true
	case map[string]any:
		for key, value := range v {
			if path, found = nullPath(value); found {
				return "." + key + path, true
			}
		}
	case []any:
		for i, value := range v {
			if path, found = nullPath(value); found {
				return fmt.Sprintf("[%d]%s", i, path), true
			}
		}
	}
	return "", false
}

// Encode returns the bytes of a customize response; an empty one is an empty list,
// never null. A rule without names selects every object of its resource and is an
// error that unwraps to ErrBadResponse.
func (r *CustomizeResponse) Encode() ([]byte, error) {
	if r == nil || r.RelatedResources == nil {
		return []byte(`{"relatedResources":[]}`), nil
	}
	for i, rule := range r.RelatedResources {
		if rule.APIVersion == "" || rule.Resource == "" || len(rule.Names) == 0 {
			return nil, fmt.Errorf("%w: related resource rule %d lacks apiVersion, resource or names", ErrBadResponse, i)
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode customize response: %w", err)
	}
	return b, nil
}
