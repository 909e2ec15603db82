package webhooks

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// The answers as hook API v2 has them, written down once more from its
// documentation: a slip in the types that write answers must not excuse itself
// in the tests that read them.
type (
	v2Answer struct {
		Status             map[string]any   `json:"status"`
		Children           []map[string]any `json:"children"`
		ResyncAfterSeconds *float64         `json:"resyncAfterSeconds"`
		Finalized          *bool            `json:"finalized"`
	}
	v2Customize struct {
		RelatedResources []v2Rule `json:"relatedResources"`
	}
	v2Rule struct {
		APIVersion        string                `json:"apiVersion"`
		Resource          string                `json:"resource"`
		LabelSelector     *metav1.LabelSelector `json:"labelSelector,omitempty"`
		NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
		Namespace         string                `json:"namespace,omitempty"`
		Names             []string              `json:"names,omitempty"`
	}
)

// readV2 decodes as Metacontroller does for hooks of version v2: unknown and
// repeated fields are errors, and integers stay integers.
func readV2[T any](t testing.TB, answer []byte) T {
	t.Helper()
	var out T
	strict, err := kjson.UnmarshalStrict(answer, &out)
	require.NoError(t, errors.Join(append(strict, err)...), "%s", answer)
	return out
}

// v2Of is a safe sync or finalize answer, decoded.
func v2Of(t testing.TB, answer []byte) v2Answer {
	t.Helper()
	a := readV2[v2Answer](t, answer)
	require.NotEmpty(t, a.Status)
	require.NotNil(t, a.Children)
	require.NotNil(t, a.ResyncAfterSeconds)
	require.NotNil(t, a.Finalized)
	return a
}

func (a v2Answer) phase() string { return text(a.Status, "phase") }

// reason is the reason of the Provisioned condition.
func (a v2Answer) reason() string {
	for _, c := range a.Status["conditions"].([]any) {
		if c := c.(map[string]any); c["type"] == "Provisioned" {
			return text(c, "reason")
		}
	}
	return ""
}

// listed are the children's kinds and names.
func (a v2Answer) listed() []string {
	out := []string{}
	for _, c := range a.Children {
		out = append(out, text(c, "kind")+" "+text(c, "metadata", "name"))
	}
	return out
}

// text is the string at a path below v, "" when there is none.
func text(v any, path ...string) string {
	s, _ := at(v, path...).(string)
	return s
}

// at is the value at a path below v, nil when there is none.
func at(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// walk calls visit for v and everything below it.
func walk(path string, v any, visit func(path string, v any)) {
	visit(path, v)
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			walk(path+"."+name, value, visit)
		}
	case []any:
		for _, value := range v {
			walk(path+"[]", value, visit)
		}
	}
}

// decodedJSON is a text as maps and lists.
func decodedJSON(t testing.TB, b []byte) any {
	t.Helper()
	var out any
	require.NoError(t, json.Unmarshal(b, &out))
	return out
}
