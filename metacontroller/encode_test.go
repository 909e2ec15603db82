package metacontroller_test

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// v2Response and v2Customize are the responses as documented by Metacontroller's
// hook API v2, independent of our types, so that the tests find a mistake there.
type v2Response struct {
	Status             map[string]any `json:"status"`
	Children           []v2Child      `json:"children"`
	ResyncAfterSeconds *float64       `json:"resyncAfterSeconds"`
	Finalized          *bool          `json:"finalized"`
}

type v2Child struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       map[string]any `json:"spec"`
}

type v2Customize struct {
	RelatedResources []struct {
		APIVersion    string   `json:"apiVersion"`
		Resource      string   `json:"resource"`
		LabelSelector any      `json:"labelSelector"`
		Namespace     string   `json:"namespace"`
		Names         []string `json:"names"`
	} `json:"relatedResources"`
}

func decodeStrict(t testing.TB, b []byte, into any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(into), string(b))
	require.False(t, dec.More())
}

func pod(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Pod",
		"metadata":   map[string]any{"name": name, "namespace": "crawl", "labels": map[string]any{"app": "squid"}},
		"spec":       map[string]any{"containers": []any{map[string]any{"name": "squid", "args": []any{"<&>"}}}},
	}}
}

func with(child *unstructured.Unstructured, value any, path ...string) *unstructured.Unstructured {
	if err := unstructured.SetNestedField(child.Object, value, path...); err != nil {
		panic(err)
	}
	return child
}

func answer(children ...*unstructured.Unstructured) *metacontroller.Response {
	if children == nil {
		children = []*unstructured.Unstructured{}
	}
	return &metacontroller.Response{Status: map[string]any{"phase": "Ready", "port": int64(3128)}, Children: children, ResyncAfterSeconds: 2.5}
}

func TestEncodeRoundTrip(t *testing.T) {
	for name, response := range map[string]*metacontroller.Response{
		"no children":  answer(),
		"two children": answer(pod("a"), pod("b")),
		"empty status": {Status: map[string]any{}, Children: []*unstructured.Unstructured{}},
		"finalized":    {Status: map[string]any{"phase": "Deleting"}, Children: []*unstructured.Unstructured{}, Finalized: true},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := response.Encode()
			require.NoError(t, err)
			var got v2Response
			decodeStrict(t, b, &got)
			require.NotNil(t, got.Status)
			require.NotNil(t, got.Children, "null would delete every child")
			require.Len(t, got.Children, len(response.Children))
			for i, child := range got.Children {
				require.Equal(t, response.Children[i].GetName(), child.Metadata["name"])
				require.Equal(t, response.Children[i].Object["spec"], child.Spec)
			}
			require.Equal(t, response.ResyncAfterSeconds, *got.ResyncAfterSeconds)
			require.Equal(t, response.Finalized, *got.Finalized)

			again, err := response.Encode()
			require.NoError(t, err)
			require.Equal(t, string(b), string(again), "same answer, same bytes")
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	tests := []struct {
		name     string
		response *metacontroller.Response
		want     string
	}{
		{"nil", nil, "nil response"},
		{"nil status", &metacontroller.Response{Children: []*unstructured.Unstructured{}}, "nil status"},
		{"nil children", &metacontroller.Response{Status: map[string]any{}}, "nil children"},
		{"a nil child", answer(pod("a"), nil), "child 1 is nil, which crashes Metacontroller"},
		{"an empty child", answer(&unstructured.Unstructured{}), "child 0 lacks apiVersion"},
		{"a child without name", answer(pod("")), "lacks apiVersion, kind or name"},
		{"the same child twice", answer(pod("a"), pod("b"), pod("a")), "child 2 repeats v1 Pod crawl/a"},
		{"a child with status", answer(with(pod("a"), "Running", "status", "phase")), "has a status"},
		{"a child with a UID", answer(with(pod("a"), "1", "metadata", "uid")), "metadata.uid"},
		{"a child with a null time", answer(with(pod("a"), nil, "metadata", "creationTimestamp")), "metadata.creationTimestamp"},
		{"a null deep in a child", answer(with(pod("a"), []any{map[string]any{"b": nil}}, "spec", "volumes")), "null at .spec.volumes[0].b"},
		{"a label that is a number", answer(with(pod("a"), int64(1), "metadata", "labels", "n")), "bad labels"},
		{"a null in the status", &metacontroller.Response{Status: map[string]any{"b": "", "a": nil}, Children: []*unstructured.Unstructured{}}, "status.a is null"},
		{"a negative delay", &metacontroller.Response{Status: map[string]any{}, Children: []*unstructured.Unstructured{}, ResyncAfterSeconds: -1}, "resyncAfterSeconds -1"},
		{"no number as delay", &metacontroller.Response{Status: map[string]any{}, Children: []*unstructured.Unstructured{}, ResyncAfterSeconds: math.NaN()}, "resyncAfterSeconds NaN"},
		{"an endless delay", &metacontroller.Response{Status: map[string]any{}, Children: []*unstructured.Unstructured{}, ResyncAfterSeconds: math.Inf(1)}, "resyncAfterSeconds +Inf"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := tt.response.Encode()
			require.ErrorIs(t, err, metacontroller.ErrBadResponse)
			require.ErrorContains(t, err, tt.want)
			require.Empty(t, b)
		})
	}
}

func TestEncodeFailsOnWhatIsNotJSON(t *testing.T) {
	response := answer()
	response.Status["phase"] = math.NaN()
	b, err := response.Encode()
	require.ErrorContains(t, err, "encode hook response")
	require.Empty(t, b)
}

func TestEncodeCustomize(t *testing.T) {
	rule := metacontroller.RelatedResourceRule{APIVersion: "v1", Resource: "secrets", Namespace: "crawl", Names: []string{"boot"}}
	for name, response := range map[string]*metacontroller.CustomizeResponse{
		"nil":       nil,
		"nil rules": {},
		"no rules":  {RelatedResources: []metacontroller.RelatedResourceRule{}},
		"a rule":    {RelatedResources: []metacontroller.RelatedResourceRule{rule}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := response.Encode()
			require.NoError(t, err)
			var got v2Customize
			decodeStrict(t, b, &got)
			require.NotNil(t, got.RelatedResources)
			for _, r := range got.RelatedResources {
				require.Equal(t, rule.Names, r.Names)
				require.Nil(t, r.LabelSelector, "names cannot be combined with a selector")
			}
		})
	}
}

func TestEncodeCustomizeRefuses(t *testing.T) {
	for name, rule := range map[string]metacontroller.RelatedResourceRule{
		"no apiVersion": {Resource: "secrets", Names: []string{"a"}},
		"no resource":   {APIVersion: "v1", Names: []string{"a"}},
		"no names":      {APIVersion: "v1", Resource: "secrets", Namespace: "crawl"},
	} {
		_, err := (&metacontroller.CustomizeResponse{RelatedResources: []metacontroller.RelatedResourceRule{rule}}).Encode()
		require.ErrorIs(t, err, metacontroller.ErrBadResponse, name)
	}
}

// FuzzEncode passes any JSON through Encode, whose output must always be a response
// that does not crash Metacontroller.
func FuzzEncode(f *testing.F) {
	f.Add([]byte(`{"status":{"phase":"Ready"},"children":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}],"resyncAfterSeconds":5}`))
	f.Add([]byte(`{"status":{},"children":[null]}`))
	f.Add([]byte(`{"status":{"a":[null]},"children":[]}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var response *metacontroller.Response
		if json.Unmarshal(body, &response) != nil {
			return
		}
		b, err := response.Encode()
		if err != nil {
			require.Empty(t, b)
			return
		}
		require.NotContains(t, []string{"null", "{}"}, string(b))
		var got map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(b, &got))
		require.Equal(t, byte('['), got["children"][0])
		require.Equal(t, byte('{'), got["status"][0])
		var children []json.RawMessage
		require.NoError(t, json.Unmarshal(got["children"], &children))
		for _, child := range children {
			require.Equal(t, byte('{'), child[0])
		}
	})
}
