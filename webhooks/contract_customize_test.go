package webhooks

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Metacontroller keeps the answer for 20 minutes under the Proxy's UID and
// generation, which labels, annotations and status do not change.
func TestContractCustomizeLooksAtTheSpecAlone(t *testing.T) {
	forEachCase(t, func(t *testing.T, c contractCase) {
		want := c.answer(t)
		for what, value := range map[string]any{
			"labels":            object{"crawl.example.com/cloud-init": "true"},
			"annotations":       object{"crawl.example.com/abandon": "true"},
			"generation":        int64(77),
			"resourceVersion":   "123456",
			"deletionTimestamp": "2026-11-29T12:00:00Z",
			"finalizers":        list{"other-owner.example/s"},
		} {
			c := c.edited(t, func(parent object) { setNested(t, parent, value, "metadata", what) })
			sameBytes(t, want, c.answer(t), what)
		}
		for _, status := range []object{{}, {"phase": "Ready", "instanceID": "x"}, {"phase": "Failed"}} {
			c := c.edited(t, func(parent object) { parent["status"] = status })
			sameBytes(t, want, c.answer(t), "status")
		}
		later := c.hooks(c.now.AddDate(1, 0, 0))
		sameBytes(t, want, answerTo(t, later, "customize", c.body), "a year later")
	}, "customize")
}

// edited is the request with another parent.
func (c contractCase) edited(t testing.TB, edit func(parent object)) contractCase {
	t.Helper()
	var body map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(c.body, &body))
	parent := decodedJSON(t, body["parent"]).(object)
	edit(parent)
	body["parent"] = mustJSON(t, parent)
	c.body, c.known = mustJSON(t, body), nil
	return c
}

// Rules combine only what may be combined, and request the one Secret by its name:
// every other rule makes Metacontroller send objects that the hooks do not need.
func TestContractCustomizeRules(t *testing.T) {
	asked := 0
	forEachCase(t, func(t *testing.T, c contractCase) {
		parent := at(decodedJSON(t, c.body), "parent")
		for _, rule := range readV2[v2Customize](t, c.answer(t)).RelatedResources {
			asked++
			require.False(t, len(rule.Names) > 0 && rule.LabelSelector != nil, "names and labelSelector")
			require.False(t, len(rule.Names) > 0 && rule.NamespaceSelector != nil, "names and namespaceSelector")
			require.False(t, rule.Namespace != "" && rule.NamespaceSelector != nil, "namespace and namespaceSelector")
			require.Nil(t, rule.LabelSelector, "an empty one is every object there is")

			require.Equal(t, "v1 secrets", rule.APIVersion+" "+rule.Resource)
			require.Equal(t, text(parent, "metadata", "namespace"), rule.Namespace, "never another namespace's")
			require.Equal(t, []string{text(parent, "spec", "cloudInit", "secretRef", "name")}, rule.Names)
			require.Empty(t, validation.IsDNS1123Subdomain(rule.Names[0]))
		}
	}, "customize")
	require.Greater(t, asked, 20)
}
