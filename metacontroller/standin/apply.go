package standin

import (
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// lastAppliedAnnotation holds the child of the response by which it was last
// written. It is Metacontroller's, so that a cluster can switch between it and
// the stand-in.
const lastAppliedAnnotation = "metacontroller.k8s.io/last-applied-configuration"

// systemFields of metadata are set by the API server. A hook's values for them
// are ignored: they would differ at every reconcile.
var systemFields = []string{
	"selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
	"deletionTimestamp", "deletionGracePeriodSeconds", "managedFields",
}

// applied returns observed with desired applied to it.
func applied(observed, desired *object) (*object, error) {
	last, err := lastApplied(observed)
	if err != nil {
		return nil, err
	}
	desired = desired.DeepCopy()
	unstructured.RemoveNestedField(desired.Object, "metadata", "annotations", lastAppliedAnnotation)
	original := observed.DeepCopy().Object
	out := &object{Object: merge(original, last, desired.Object)}
	restore(out.Object, original, "status")
	metadata, _ := original["metadata"].(map[string]any)
	merged, _ := out.Object["metadata"].(map[string]any) // a map if the observed one is
	restore(merged, metadata, systemFields...)
	return out, setLastApplied(out, desired)
}

// restore copies fields of original to merged, and removes those that it lacks.
func restore(merged, original map[string]any, fields ...string) {
	for _, field := range fields {
		if value, found := original[field]; found {
			merged[field] = value
		} else {
			delete(merged, field)
		}
	}
}

func lastApplied(obj *object) (map[string]any, error) {
	text := obj.GetAnnotations()[lastAppliedAnnotation]
	if text == "" {
		return nil, nil
	}
	var last map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &last); err != nil {
		return nil, fmt.Errorf("annotation %s of %s: %w", lastAppliedAnnotation, describe(obj), err)
	}
	return last, nil
}

// setLastApplied records desired in the annotation of obj.
func setLastApplied(obj, desired *object) error {
	text, err := json.Marshal(desired.Object)
	if err != nil {
		return fmt.Errorf("encode %s: %w", describe(desired), err)
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[lastAppliedAnnotation] = string(text)
	obj.SetAnnotations(annotations)
	return nil
}

// mergeKeys are candidates for the key of a list of objects, in Metacontroller's
// order (pkg/dynamic/apply): the first that every item of the observed, the
// last-applied and the desired list has.
var mergeKeys = []string{"containerPort", "port", "mountPath", "name", "uid", "ip", "path"}

// merge is the three-way merge of an object: fields that were applied and are no
// longer desired are removed, desired fields are set, and all others, which have
// other owners, stay. A value of another type than the observed one counts as
// absent, as in Metacontroller. The arguments are not changed.
func merge(observed, lastApplied, desired map[string]any) map[string]any {
	out := runtime.DeepCopyJSON(observed)
	mergeObject(out, lastApplied, runtime.DeepCopyJSON(desired))
	return out
}

func mergeObject(observed, lastApplied, desired map[string]any) {
	for key := range lastApplied {
		if _, stays := desired[key]; !stays {
			delete(observed, key)
		}
	}
	for key, want := range desired {
		observed[key] = mergeValue(observed[key], lastApplied[key], want)
	}
}

func mergeValue(observed, lastApplied, desired any) any {
	switch observed := observed.(type) {
	case map[string]any:
		last, _ := lastApplied.(map[string]any)
		want, _ := desired.(map[string]any)
		mergeObject(observed, last, want)
		return observed
	case []any:
		last, _ := lastApplied.([]any)
		want, _ := desired.([]any)
		return mergeList(observed, last, want)
	}
	return desired
}

// mergeList merges lists of keyed objects item by item and replaces other lists.
// Observed items keep their order, new items follow in the desired order. Items
// with the same key become copies of the last one: Metacontroller uses one key
// field where the API has two (a Service's port and protocol).
func mergeList(observed, lastApplied, desired []any) []any {
	key := commonKey(observed, lastApplied, desired)
	if key == "" {
		return desired
	}
	merged := byKey(key, observed)
	mergeObject(merged, byKey(key, lastApplied), byKey(key, desired))
	out := make([]any, 0, len(merged))
	added := map[string]bool{}
	for _, item := range observed {
		id := itemID(key, item)
		if value, stays := merged[id]; stays {
			out = append(out, value)
			added[id] = true
		}
	}
	for _, item := range desired {
		if id := itemID(key, item); !added[id] {
			out = append(out, merged[id])
			added[id] = true
		}
	}
	return out
}

// commonKey returns the first of mergeKeys that all items have, or "".
func commonKey(lists ...[]any) string {
	var common map[string]any
	for _, list := range lists {
		for _, item := range list {
			obj, ok := item.(map[string]any)
			if !ok {
				return ""
			}
			if common == nil {
				common = maps.Clone(obj)
			}
			maps.DeleteFunc(common, func(key string, _ any) bool {
				_, has := obj[key]
				return !has
			})
		}
	}
	for _, key := range mergeKeys {
		if _, ok := common[key]; ok {
			return key
		}
	}
	return ""
}

func byKey(key string, list []any) map[string]any {
	out := make(map[string]any, len(list))
	for _, item := range list {
		out[itemID(key, item)] = item
	}
	return out
}

func itemID(key string, item any) string {
	return fmt.Sprint(item.(map[string]any)[key])
}
