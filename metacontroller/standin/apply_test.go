package standin

import (
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	kjson "sigs.k8s.io/json"
)

func TestMerge(t *testing.T) {
	tests := []struct {
		name, observed, applied, desired, want string
	}{
		{"nothing at all", `{}`, `{}`, `{}`, `{}`},
		{"a new field", `{"a":1}`, `{}`, `{"b":2}`, `{"a":1,"b":2}`},
		{"a changed field", `{"a":1}`, `{"a":1}`, `{"a":2}`, `{"a":2}`},
		{"a field that somebody else changed is ours again", `{"a":9}`, `{"a":1}`, `{"a":1}`, `{"a":1}`},
		{"a field that somebody else added stays", `{"a":1,"x":9}`, `{"a":1}`, `{"a":1}`, `{"a":1,"x":9}`},
		{"a field that we no longer want goes", `{"a":1,"b":2}`, `{"a":1,"b":2}`, `{"a":1}`, `{"a":1}`},
		{"one that we never applied stays", `{"a":1,"b":2}`, `{"a":1}`, `{}`, `{"b":2}`},
		{"deep inside", `{"s":{"a":1,"b":2,"x":9}}`, `{"s":{"a":1,"b":2}}`, `{"s":{"a":3}}`, `{"s":{"a":3,"x":9}}`},
		{"without last applied nothing is removed", `{"s":{"a":1}}`, `null`, `{"s":{"b":2}}`, `{"s":{"a":1,"b":2}}`},
		{"a list of scalars is replaced", `{"l":[1,2]}`, `{"l":[1,2]}`, `{"l":[2]}`, `{"l":[2]}`},
		{"a list of objects without a known key is replaced", `{"tolerations":[{"key":"a"},{"key":"b"}]}`, `{"tolerations":[{"key":"a"}]}`, `{"tolerations":[{"key":"a"}]}`, `{"tolerations":[{"key":"a"}]}`},
		{"a mixed list is replaced", `{"l":[{"name":"a"},1]}`, `{}`, `{"l":[{"name":"a"}]}`, `{"l":[{"name":"a"}]}`},
		{"keyed by name", `{"c":[{"name":"a","v":1,"x":9},{"name":"sidecar"}]}`, `{"c":[{"name":"a","v":1}]}`, `{"c":[{"name":"a","v":2}]}`, `{"c":[{"name":"a","v":2,"x":9},{"name":"sidecar"}]}`},
		{"an item that we no longer want goes", `{"c":[{"name":"a"},{"name":"b"},{"name":"c"}]}`, `{"c":[{"name":"a"},{"name":"b"}]}`, `{"c":[{"name":"a"}]}`, `{"c":[{"name":"a"},{"name":"c"}]}`},
		{"observed order stays, new items follow", `{"c":[{"name":"b"},{"name":"a"}]}`, `{"c":[]}`, `{"c":[{"name":"z"},{"name":"a"},{"name":"b"}]}`, `{"c":[{"name":"b"},{"name":"a"},{"name":"z"}]}`},
		{"containerPort before name", `{"p":[{"containerPort":1,"name":"a"}]}`, `{"p":[]}`, `{"p":[{"containerPort":1,"name":"b"}]}`, `{"p":[{"containerPort":1,"name":"b"}]}`},
		{"a port twice collapses, as there", `{"p":[{"port":1,"n":"t"},{"port":1,"n":"u"}]}`, `{"p":[]}`, `{"p":[{"port":1,"n":"t"},{"port":1,"n":"u"}]}`, `{"p":[{"port":1,"n":"u"},{"port":1,"n":"u"}]}`},
		{"numbers are keys as well", `{"p":[{"port":1},{"port":2}]}`, `{"p":[{"port":1}]}`, `{"p":[{"port":3}]}`, `{"p":[{"port":2},{"port":3}]}`},
		{"a scalar becomes an object", `{"a":1}`, `{"a":1}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		{"an object stays one when a scalar is wanted", `{"a":{"b":1,"x":2}}`, `{"a":{"b":1}}`, `{"a":1}`, `{"a":{"x":2}}`},
		{"null over an object removes what was ours", `{"a":{"b":1,"x":2}}`, `{"a":{"b":1}}`, `{"a":null}`, `{"a":{"x":2}}`},
		{"null over a scalar", `{"a":1}`, `{"a":1}`, `{"a":null}`, `{"a":null}`},
		{"an empty list over a keyed one", `{"c":[{"name":"a"},{"name":"x"}]}`, `{"c":[{"name":"a"}]}`, `{"c":[]}`, `{"c":[{"name":"x"}]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			observed, last, desired := content(t, tt.observed), content(t, tt.applied), content(t, tt.desired)
			got := merge(observed, last, desired)
			require.JSONEq(t, tt.want, encode(t, got))
			require.JSONEq(t, tt.observed, encode(t, observed), "the argument is not changed")
			require.JSONEq(t, tt.desired, encode(t, desired), "the argument is not changed")
			require.JSONEq(t, tt.want, encode(t, merge(got, desired, desired)), "once more changes nothing")
		})
	}
}

func content(t testing.TB, text string) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &out))
	return out
}

func encode(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// randomValue returns an object with fields from a small alphabet, so that three
// of them overlap.
func randomValue(r *rand.Rand, depth int) map[string]any {
	out := map[string]any{}
	for _, key := range []string{"a", "b", "c"} {
		switch r.IntN(4) {
		case 0:
			out["scalar-"+key] = int64(r.IntN(3))
		case 1:
			out["list-"+key] = []any{strconv.Itoa(r.IntN(3))}
		case 2:
			if depth > 0 {
				out["object-"+key] = randomValue(r, depth-1)
			}
		case 3:
			if depth > 0 {
				var items []any
				for i := range r.IntN(3) {
					item := randomValue(r, depth-1)
					item["name"] = strconv.Itoa(i)
					items = append(items, item)
				}
				out["keyed-"+key] = append([]any{map[string]any{"name": "always"}}, items...)
			}
		}
	}
	return out
}

// requireWithin checks that got contains want.
func requireWithin(t *testing.T, want, got any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		gotMap, ok := got.(map[string]any)
		require.True(t, ok)
		for key, value := range want {
			requireWithin(t, value, gotMap[key])
		}
	case []any:
		if _, keyed := want[0].(map[string]any); !keyed {
			require.Equal(t, want, got)
			return
		}
		for id, item := range byKey("name", want) {
			requireWithin(t, item, byKey("name", got.([]any))[id])
		}
	default:
		require.Equal(t, want, got)
	}
}

func TestMergeProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		observed, last, desired := randomValue(r, 3), randomValue(r, 3), randomValue(r, 3)
		got := merge(observed, last, desired)
		requireWithin(t, desired, got)
		require.Equal(t, got, merge(got, desired, desired), "settles after one write")
		require.Equal(t, observed, merge(observed, map[string]any{}, map[string]any{}), "wanting nothing changes nothing")
		require.Equal(t, desired, merge(map[string]any{}, last, desired), "a new object is what is wanted")
	}
}

func FuzzMerge(f *testing.F) {
	f.Add(`{"a":[{"name":"x"}]}`, `{"a":[{"name":"x"}]}`, `{"a":[{"name":"y"},{"name":"y"}]}`)
	f.Add(`{"a":{"b":1}}`, `{"a":1}`, `{"a":null}`)
	f.Add(`{"a":[{"port":1.5},{"port":null}]}`, `null`, `{"a":[{"port":{}}]}`)
	f.Fuzz(func(t *testing.T, observed, last, desired string) {
		var o, l, d map[string]any
		for text, into := range map[string]*map[string]any{observed: &o, last: &l, desired: &d} {
			if kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), into) != nil {
				return
			}
		}
		if o == nil {
			return
		}
		before := encode(t, []any{o, l, d})
		merge(o, l, d)
		require.Equal(t, before, encode(t, []any{o, l, d}), "arguments are not changed")
	})
}

// The reason for OnDelete on Pods: elements that admission adds to a list without a
// known key, and non-canonical values, differ at every reconcile.
func TestMergeDiffersForEverForUnkeyedListsAndNonCanonicalValues(t *testing.T) {
	for name, desired := range map[string]string{
		"a toleration":       `{"spec":{"tolerations":[{"key":"mine","operator":"Exists"}]}}`,
		"a quantity":         `{"spec":{"containers":[{"name":"squid","resources":{"limits":{"cpu":"1000m"}}}]}}`,
		"an explicit null":   `{"metadata":{"labels":{"gone":null}}}`,
		"an empty env value": `{"spec":{"containers":[{"name":"squid","env":[{"name":"A","value":""}]}]}}`,
	} {
		observed := parse(t, `{"metadata":{"name":"a","labels":{}},"spec":{
			"tolerations":[{"key":"mine","operator":"Exists"},{"key":"node.kubernetes.io/not-ready"}],
			"containers":[{"name":"squid","env":[{"name":"A"}],"resources":{"limits":{"cpu":"1"}}}]}}`)
		want := parse(t, desired)
		require.NoError(t, setLastApplied(observed, want))
		got, err := applied(observed, want)
		require.NoError(t, err)
		require.NotEqual(t, observed.Object, got.Object, name)
	}
}

func TestAppliedKeepsFieldsOfTheAPIServer(t *testing.T) {
	observed := parse(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","uid":"1","resourceVersion":"7","generation":2},"spec":{"a":1},"status":{"phase":"Running"}}`)
	desired := parse(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","uid":"other","creationTimestamp":null,"annotations":{"`+lastAppliedAnnotation+`":"{\"x\":1}"}},"spec":{"a":2},"status":{"phase":"Failed"}}`)
	got, err := applied(observed, desired)
	require.NoError(t, err)
	require.Equal(t, observed.GetUID(), got.GetUID())
	require.Equal(t, "7", got.GetResourceVersion())
	require.Equal(t, observed.Object["status"], got.Object["status"])
	require.NotContains(t, got.Object["metadata"], "creationTimestamp")
	require.Equal(t, map[string]any{"a": int64(2)}, got.Object["spec"])
	require.NotContains(t, got.GetAnnotations()[lastAppliedAnnotation], `\"x\"`, "the hook cannot set what we note down")

	again, err := applied(got, desired)
	require.NoError(t, err)
	require.Equal(t, got.Object, again.Object)
}

func TestAppliedRejectsAnInvalidAnnotation(t *testing.T) {
	observed := parse(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"ns","annotations":{"`+lastAppliedAnnotation+`":"{"}}}`)
	_, err := applied(observed, parse(t, `{"metadata":{"name":"a"}}`))
	require.ErrorContains(t, err, lastAppliedAnnotation+" of Pod ns/a")
}
