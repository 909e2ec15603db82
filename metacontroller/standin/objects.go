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

// sorted returns the objects by group, version, kind and key.
func (m objectMap) sorted() []*object {
	var all []*object
	for _, objects := range m {
		all = slices.AppendSeq(all, maps.Values(objects))
	}
	slices.SortFunc(all, func(a, b *object) int {
		x, y := a.GroupVersionKind(), b.GroupVersionKind()
		return cmp.Or(cmp.Compare(x.Group, y.Group), cmp.Compare(x.Version, y.Version), cmp.Compare(x.Kind, y.Kind), cmp.Compare(keyOf(a), keyOf(b)))
	})
	return all
}

// like returns the object of obj's kind and key, or nil.
func (m objectMap) like(obj *object) *object { return m[obj.GroupVersionKind()][keyOf(obj)] }

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
