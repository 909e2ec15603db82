package webhooks

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// toChild converts a typed child into what goes on the wire: without nulls,
// empty values, status or creation time. Metacontroller compares what we send
// with what the API server stores, and everything that the server drops or owns
// would differ for ever.
func toChild(typed runtime.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, fmt.Errorf("convert %T: %w", typed, err)
	}
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	content, _ = prune(content).(map[string]any)
	return &unstructured.Unstructured{Object: content}, nil
}

// prune returns v without nulls, empty maps and empty lists below any map; nil
// when nothing is left. Elements of lists stay, since their positions count.
func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if value = prune(value); value == nil {
				delete(v, key)
				continue
			}
			v[key] = value
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

// identity is a child that is only named. Under the update method OnDelete that
// is enough to keep it, and if it vanished meanwhile the API server refuses to
// make one from it.
func identity(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetAPIVersion(apiVersion)
	obj.SetKind(kind)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj
}
