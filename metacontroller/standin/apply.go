package standin

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/runtime"
)

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
