package standin

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestKeys(t *testing.T) {
	node := parse(t, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`)
	require.Equal(t, "crawl/a", keyOf(pod("a")))
	require.Equal(t, "n", keyOf(node))
	require.Equal(t, "Pod crawl/a", describe(pod("a")))
	require.Equal(t, "Pod.v1", kindKey(pod("a").GroupVersionKind()))
	require.Equal(t, "Proxy.crawl.example.com/v1alpha1", kindKey(proxy().GroupVersionKind()))
}

func TestObjectMap(t *testing.T) {
	m := objectMap{}
	m.addKind(schema.GroupVersionKind{Version: "v1", Kind: "Secret"})
	m.add(proxy())
	m.add(pod("a"))
	m.add(pod("b"))
	m.add(pod("b", func(o *object) { o.SetUID("later") }))
	m.addKind(pod("a").GroupVersionKind())

	var sorted []string
	for _, obj := range m.sorted() {
		sorted = append(sorted, describe(obj))
	}
	require.Equal(t, []string{"Pod crawl/a", "Pod crawl/b", "Proxy crawl/fra-1"}, sorted, "by group, version, kind, key")
	require.Len(t, m, 3, "a kind without objects is present")
	require.EqualValues(t, "later", m.like(pod("b")).GetUID())
	require.Nil(t, m.like(pod("c")))
	require.Len(t, m[pod("a").GroupVersionKind()], 2, "asking for a kind again empties nothing")
	require.EqualValues(t, "later", m[pod("b").GroupVersionKind()]["crawl/b"].GetUID())

	encoded, err := m.encode()
	require.NoError(t, err)
	require.NotNil(t, encoded["Secret.v1"])
	require.Empty(t, encoded["Secret.v1"])
	require.JSONEq(t, encode(t, pod("a").Object), string(encoded["Pod.v1"]["crawl/a"]))

	_, err = objectMap{{Kind: "X"}: {"a": {Object: map[string]any{"metadata": map[string]any{"name": "a"}, "bad": make(chan int)}}}}.encode()
	require.ErrorContains(t, err, "encode")
}

func TestOwnIsIdempotent(t *testing.T) {
	child := pod("a")
	before := child.GetOwnerReferences()
	own(proxy(), child)
	require.Equal(t, before, child.GetOwnerReferences())
}

func TestDesiredChildren(t *testing.T) {
	elsewhere := pod("b", func(o *object) { o.SetNamespace("other") })
	desired, err := desiredChildren(proxy(), []*object{
		parse(t, podJSON),
		parse(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"crawl","labels":{"x":"y"}}}`),
		elsewhere,
	})
	require.NoError(t, err)
	got := desired[pod("a").GroupVersionKind()]
	require.Len(t, got, 2, "of two with one name the later counts")
	require.Equal(t, map[string]string{"x": "y", selectorLabel: string(parentID)}, got["crawl/a"].GetLabels())
	require.Contains(t, got, "other/b", "a namespace that is given stays")

	none, err := desiredChildren(proxy(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
}
