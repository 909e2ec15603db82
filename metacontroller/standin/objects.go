package standin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

type object = unstructured.Unstructured

// objectMap holds objects by kind, then by metacontroller.Key. A kind without
// objects is present if the manifest or a rule lists it.
type objectMap map[schema.GroupVersionKind]map[string]*object

func (m objectMap) addKind(gvk schema.GroupVersionKind) {
	if m[gvk] == nil {
		m[gvk] = map[string]*object{}
	}
}

// add inserts obj under its kind and key, in place of an earlier one.
func (m objectMap) add(obj *object) {
	gvk := obj.GroupVersionKind()
	m.addKind(gvk)
	m[gvk][keyOf(obj)] = obj
}

// kinds returns the kinds, sorted by group, version and kind.
func (m objectMap) kinds() []schema.GroupVersionKind {
	return slices.SortedFunc(maps.Keys(m), func(a, b schema.GroupVersionKind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
	})
}

// encode returns m as hook requests contain it.
func (m objectMap) encode() (metacontroller.Objects, error) {
	out := metacontroller.Objects{}
	for gvk, objects := range m {
		encoded := make(map[string]json.RawMessage, len(objects))
		for key, obj := range objects {
			raw, err := obj.MarshalJSON()
			if err != nil {
				return nil, fmt.Errorf("encode %s: %w", describe(obj), err)
			}
			encoded[key] = raw
		}
		out[kindKey(gvk)] = encoded
	}
	return out, nil
}

// kindKey is "Pod.v1" or "ProxyProbe.crawl.example.com/v1alpha1".
func kindKey(gvk schema.GroupVersionKind) string {
	return gvk.Kind + "." + gvk.GroupVersion().String()
}

func keyOf(obj *object) string {
	return metacontroller.Key(obj.GetNamespace(), obj.GetName())
}

func describe(obj *object) string {
	return obj.GetKind() + " " + keyOf(obj)
}
