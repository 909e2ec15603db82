package metacontroller

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ErrBadResponse: the answer would make Metacontroller crash, fail, or delete
// children that nobody meant to delete.
var ErrBadResponse = errors.New("unsafe hook response")

// Encode returns the bytes of a sync or finalize answer, or an error that
// unwraps to ErrBadResponse when the answer is one that must never be sent.
func (r *Response) Encode() ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(r.wire())
	if err != nil {
		return nil, fmt.Errorf("encode hook response: %w", err)
	}
	return b, nil
}

// wireResponse is a Response with its children as plain maps: Unstructured
// encodes itself, and the encoder around it then reads all of that once more.
type wireResponse struct {
	Status             map[string]any   `json:"status"`
	Children           []map[string]any `json:"children"`
	ResyncAfterSeconds float64          `json:"resyncAfterSeconds"`
	Finalized          bool             `json:"finalized"`
}

func (r *Response) wire() wireResponse {
	w := wireResponse{r.Status, make([]map[string]any, len(r.Children)), r.ResyncAfterSeconds, r.Finalized}
	for i, child := range r.Children {
		w.Children[i] = child.Object
	}
	return w
}

func (r *Response) check() error {
	switch {
	case r == nil:
		return fmt.Errorf("%w: nil response", ErrBadResponse)
	case r.Status == nil:
		return fmt.Errorf("%w: nil status", ErrBadResponse)
	case r.Children == nil:
		return fmt.Errorf("%w: nil children", ErrBadResponse)
	case r.ResyncAfterSeconds < 0 || math.IsNaN(r.ResyncAfterSeconds) || math.IsInf(r.ResyncAfterSeconds, 0):
		return fmt.Errorf("%w: resyncAfterSeconds %v", ErrBadResponse, r.ResyncAfterSeconds)
	}
	if path := nullPath("status", r.Status); path != "" {
		return fmt.Errorf("%w: %s is null, which the API server drops, so that the status would differ for ever", ErrBadResponse, path)
	}
	seen := map[string]bool{}
	for i, child := range r.Children {
		if err := checkChild(child); err != nil {
			return fmt.Errorf("%w: child %d %w", ErrBadResponse, i, err)
		}
		id := child.GetAPIVersion() + " " + child.GetKind() + " " + Key(child.GetNamespace(), child.GetName())
		if seen[id] {
			return fmt.Errorf("%w: child %d repeats %s", ErrBadResponse, i, id)
		}
		seen[id] = true
	}
	return nil
}

// serverFields of a child's metadata belong to the API server. Sent along, they
// end up in the last-applied annotation and differ on every sync.
func serverFields() []string {
	return []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields"}
}

func checkChild(child *unstructured.Unstructured) error {
	if child == nil {
		return errors.New("is nil, which crashes Metacontroller")
	}
	if child.GetAPIVersion() == "" || child.GetKind() == "" || child.GetName() == "" {
		return errors.New("lacks apiVersion, kind or name")
	}
	if _, found := child.Object["status"]; found {
		return errors.New("has a status, which is not the hook's to set")
	}
	for _, field := range serverFields() {
		if _, found, _ := unstructured.NestedFieldNoCopy(child.Object, "metadata", field); found {
			return fmt.Errorf("has metadata.%s, which is the API server's to set", field)
		}
	}
	if _, _, err := unstructured.NestedStringMap(child.Object, "metadata", "labels"); err != nil {
		return fmt.Errorf("has bad labels: %w", err)
	}
	if path := nullPath("", child.Object); path != "" {
		return fmt.Errorf("has a null at %s, which differs from what the API server stores on every sync", path)
	}
	return nil
}

// nullPath returns the path of the first null in v, "" when there is none. It
// names no path before it knows that there is one, since there never is.
func nullPath(root string, v any) string {
	if !hasNull(v) {
		return ""
	}
	return findNull(root, v)
}

func hasNull(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		for _, value := range v {
			if hasNull(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hasNull)
	}
	return false
}

// findNull returns the path of the first null below v, keys sorted, "" when there
// is none.
func findNull(path string, v any) string {
	switch v := v.(type) {
	case nil:
		return path
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if found := findNull(path+"."+key, v[key]); found != "" {
				return found
			}
		}
	case []any:
		for i, value := range v {
			if found := findNull(fmt.Sprintf("%s[%d]", path, i), value); found != "" {
				return found
			}
		}
	}
	return ""
}

// Encode returns the bytes of a customize answer; an empty one is an empty
// list, never null. A rule without names would relate every object of its
// resource, which nobody here means, and is an error that unwraps to
// ErrBadResponse.
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
