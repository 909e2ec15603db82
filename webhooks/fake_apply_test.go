package webhooks

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// applier is one of Metacontroller's two ways to make the API server hold a
// child. The objects are as the API server has them; none is changed.
type applier interface {
	// create returns what is sent to make desired for its owner.
	create(t testing.TB, desired, owner object) object
	// update returns observed with desired applied to it, or an equal object
	// when nothing is to be done.
	update(t testing.TB, observed, desired, owner object) object
}

const lastAppliedAnnotation = "metacontroller.k8s.io/last-applied-configuration"

// dynamicApply is the default: a three-way merge by convention, with what was
// applied last in an annotation.
type dynamicApply struct{}

func (dynamicApply) create(t testing.TB, desired, owner object) object {
	t.Helper()
	out := owned(t, desired, owner)
	setNested(t, out, string(mustJSON(t, desired)), "metadata", "annotations", lastAppliedAnnotation)
	return out
}

func (dynamicApply) update(t testing.TB, observed, desired, _ object) object {
	t.Helper()
	var last object
	if s := text(observed, "metadata", "annotations", lastAppliedAnnotation); s != "" {
		require.NoError(t, json.Unmarshal([]byte(s), &last))
	}
	out := mergeObjects(runtime.DeepCopyJSON(observed), last, runtime.DeepCopyJSON(desired))
	setNested(t, out, string(mustJSON(t, desired)), "metadata", "annotations", lastAppliedAnnotation)
	return out
}

// mergeObjects takes away what was applied and is no longer desired, and sets
// what is desired; the rest belongs to others.
func mergeObjects(observed, last, desired object) object {
	if observed == nil {
		observed = object{}
	}
	for name := range last {
		if _, found := desired[name]; !found {
			delete(observed, name)
		}
	}
	for name, value := range desired {
		observed[name] = mergeValues(observed[name], last[name], value)
	}
	return observed
}

func mergeValues(observed, last, desired any) any {
	switch desired := desired.(type) {
	case object:
		if observed, ok := observed.(object); ok {
			last, _ := last.(object)
			return mergeObjects(observed, last, desired)
		}
	case list:
		observed, _ := observed.(list)
		last, _ := last.(list)
		if key := keyOf(slices.Concat(observed, last, desired)); key != "" {
			return mergeLists(key, observed, last, desired)
		}
	}
	return desired
}

// keyOf is the field that makes a list a map: the first of these that all items
// have. A list without one is replaced as a whole.
func keyOf(items list) string {
	for _, key := range []string{"containerPort", "port", "mountPath", "name", "uid", "ip", "path"} {
		if len(items) > 0 && !slices.ContainsFunc(items, func(item any) bool {
			o, _ := item.(object)
			_, found := o[key]
			return !found
		}) {
			return key
		}
	}
	return ""
}

// mergeLists keeps the observed order; what is new comes last.
func mergeLists(key string, observed, last, desired list) list {
	byKey := func(l list) object {
		out := object{}
		for _, item := range l {
			out[string(must(json.Marshal(item.(object)[key])))] = item
		}
		return out
	}
	merged := mergeObjects(byKey(observed), byKey(last), byKey(desired))
	out := list{}
	for _, item := range slices.Concat(observed, desired) {
		id := string(must(json.Marshal(item.(object)[key])))
		if m, found := merged[id]; found {
			out = append(out, m)
			delete(merged, id)
		}
	}
	return out
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// serverSideApply lets the API server merge by who owns which field. The merge
// is the API server's own code.
type serverSideApply struct {
	managers map[string]managedfieldstest.TestFieldManager
	types    map[string]managedfields.TypeConverter
}

// childTypes knows the schema of Pods. Lists in our CRDs are atomic, which is
// what the merge deduces without a schema.
func childTypes() map[string]managedfields.TypeConverter {
	return map[string]managedfields.TypeConverter{
		"Pod":        applyconfigurations.NewTypeConverter(scheme.Scheme),
		"ProxyProbe": managedfields.NewDeducedTypeConverter(),
	}
}

func newServerSideApply(types map[string]managedfields.TypeConverter) *serverSideApply {
	return &serverSideApply{managers: map[string]managedfieldstest.TestFieldManager{}, types: types}
}

func (s *serverSideApply) manager(o object) (m managedfieldstest.TestFieldManager, known bool) {
	u := unstructured.Unstructured{Object: o}
	id := u.GetKind() + " " + u.GetName()
	m, known = s.managers[id]
	if !known {
		m = managedfieldstest.NewTestFieldManager(s.types[u.GetKind()], kschema.FromAPIVersionAndKind(u.GetAPIVersion(), u.GetKind()))
		s.managers[id] = m
	}
	return m, known
}

func (s *serverSideApply) create(t testing.TB, desired, owner object) object {
	t.Helper()
	m, _ := s.manager(desired)
	m.Reset()
	return s.apply(t, m, owned(t, desired, owner))
}

// update also removes the annotation of an earlier dynamic apply, as
// Metacontroller does.
func (s *serverSideApply) update(t testing.TB, observed, desired, owner object) object {
	t.Helper()
	m, known := s.manager(desired)
	live := runtime.DeepCopyJSON(observed)
	unstructured.RemoveNestedField(live, "metadata", "annotations", lastAppliedAnnotation)
	unstructured.RemoveNestedField(live, "metadata", "managedFields")
	manager := "before"
	if known {
		manager = "the API server" // of the defaults
	}
	require.NoError(t, m.Update(&unstructured.Unstructured{Object: live}, manager))
	out := s.apply(t, m, owned(t, desired, owner))
	if fields := at(observed, "metadata", "managedFields"); fields != nil {
		setNested(t, out, fields, "metadata", "managedFields")
	}
	return out
}

func (s *serverSideApply) apply(t testing.TB, m managedfieldstest.TestFieldManager, desired object) object {
	t.Helper()
	require.NoError(t, m.Apply(&unstructured.Unstructured{Object: runtime.DeepCopyJSON(desired)}, "metacontroller", true))
	out := m.Live().(*unstructured.Unstructured).DeepCopy().Object
	unstructured.RemoveNestedField(out, "metadata", "managedFields")
	return out
}

func owned(t testing.TB, child, owner object) object {
	t.Helper()
	out := runtime.DeepCopyJSON(child)
	setNested(t, out, list{owner}, "metadata", "ownerReferences")
	return out
}

// ownedBy is the reference to a Proxy that Metacontroller puts on its children.
func ownedBy(name, uid string) object {
	return object{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": "Proxy", "name": name, "uid": uid,
		"controller": true, "blockOwnerDeletion": true,
	}
}

// labelled is a child with the label that stands for generateSelector.
func labelled(t testing.TB, child object, uid string) object {
	t.Helper()
	out := runtime.DeepCopyJSON(child)
	setNested(t, out, uid, "metadata", "labels", "controller-uid")
	return out
}

func setNested(t testing.TB, o object, value any, path ...string) {
	t.Helper()
	require.NoError(t, unstructured.SetNestedField(o, value, path...))
}
