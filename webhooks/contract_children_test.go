package webhooks

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// strictChild decodes a child into its real type, which refuses every field
// that the type does not have.
func strictChild(t *testing.T, child map[string]any) {
	t.Helper()
	switch child["kind"] {
	case "Pod":
		readV2[corev1.Pod](t, mustJSON(t, child))
	case "ProxyProbe":
		readV2[v1alpha1.ProxyProbe](t, mustJSON(t, child))
	default:
		require.Fail(t, "a child of another kind", "%v", child["kind"])
	}
}

func TestContractChildrenAreComplete(t *testing.T) {
	forEachCase(t, func(t *testing.T, c contractCase) {
		namespace := text(decodedJSON(t, c.body), "parent", "metadata", "namespace")
		seen := map[string]bool{}
		for _, child := range v2Of(t, c.answer(t)).Children {
			want := map[string]string{"Pod": "v1", "ProxyProbe": "crawl.example.com/v1alpha1"}[text(child, "kind")]
			require.NotEmpty(t, want, child["kind"])
			require.Equal(t, want, child["apiVersion"])
			require.Equal(t, namespace, text(child, "metadata", "namespace"), "children of a namespaced parent are in its namespace")
			name := text(child, "metadata", "name")
			require.Empty(t, validation.IsDNS1123Label(name), name)
			require.False(t, seen[want+name], "listed twice")
			seen[want+name] = true
			for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "ownerReferences", "deletionTimestamp"} {
				require.NotContains(t, child["metadata"], field)
			}
			require.NotContains(t, child, "status")
			require.Nil(t, at(child, "metadata", "labels", "controller-uid"), "Metacontroller sets it")
			walk("", child, func(path string, v any) {
				require.NotContains(t, []any{nil, ""}, v, "the API server drops %s", path)
				if m, ok := v.(map[string]any); ok {
					require.NotEmpty(t, m, path)
				}
			})
		}
	}, "sync", "finalize")
}

// quantityFields are where our Pods have quantities.
var quantityFields = []string{".requests.", ".limits.", ".sizeLimit"}

func TestContractQuantitiesAreCanonical(t *testing.T) {
	found := map[string]bool{}
	forEachCase(t, func(t *testing.T, c contractCase) {
		for _, child := range v2Of(t, c.answer(t)).Children {
			walk("", child, func(path string, v any) {
				written, isText := v.(string)
				if !isText || !slices.ContainsFunc(quantityFields, func(f string) bool { return strings.Contains(path, f) }) {
					return
				}
				found[written] = true
				q, err := resource.ParseQuantity(written)
				require.NoError(t, err)
				require.Equal(t, q.String(), written, path)
			})
		}
	}, "sync")
	require.Equal(t, map[string]bool{"1": true, "1Gi": true, "16Mi": true}, found, "the provider config says 1000m and 1024Mi")
}
