package crd_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
)

// schema is the part of an OpenAPI schema that these tests look at.
type schema struct {
	Description          string            `json:"description"`
	Type                 string            `json:"type"`
	Format               string            `json:"format"`
	Enum                 []any             `json:"enum"`
	MaxLength            *int64            `json:"maxLength"`
	MaxItems             *int64            `json:"maxItems"`
	MaxProperties        *int64            `json:"maxProperties"`
	Minimum              *float64          `json:"minimum"`
	ListType             string            `json:"x-kubernetes-list-type"`
	Properties           map[string]schema `json:"properties"`
	Items                *schema           `json:"items"`
	AdditionalProperties *schema           `json:"additionalProperties"`
	PreserveUnknown      bool              `json:"x-kubernetes-preserve-unknown-fields"`
	Validations          []struct {
		Rule    string `json:"rule"`
		Message string `json:"message"`
	} `json:"x-kubernetes-validations"`
}

// schemas returns the schema of each CRD by its name.
func schemas(t *testing.T) map[string]schema {
	t.Helper()
	out := map[string]schema{}
	for _, manifest := range crd.Manifests() {
		var object struct {
			Metadata struct{ Name string }
			Spec     struct {
				Versions []struct {
					Schema struct{ OpenAPIV3Schema schema }
				}
			}
		}
		require.NoError(t, yaml.Unmarshal(manifest, &object))
		require.Len(t, object.Spec.Versions, 1)
		out[object.Metadata.Name] = object.Spec.Versions[0].Schema.OpenAPIV3Schema
	}
	require.Len(t, out, 2)
	return out
}

// walk visits every field below s. What the API server itself defines and
// checks is left out.
func (s schema) walk(path string, visit func(path string, field schema)) {
	for name, field := range s.Properties {
		if path == "" && (name == "apiVersion" || name == "kind" || name == "metadata") {
			continue
		}
		visit(path+"."+name, field)
		field.walk(path+"."+name, visit)
	}
	if s.Items != nil {
		visit(path+"[]", *s.Items)
		s.Items.walk(path+"[]", visit)
	}
	if s.AdditionalProperties != nil {
		visit(path+"{}", *s.AdditionalProperties)
		s.AdditionalProperties.walk(path+"{}", visit)
	}
}

// missing returns what a field lacks.
func missing(path string, field schema) []string {
	var out []string
	lacks := func(what string, yes bool) {
		if yes {
			out = append(out, path+": "+what)
		}
	}
	isElement := strings.HasSuffix(path, "]") || strings.HasSuffix(path, "}")
	lacks("no description", field.Description == "" && !isElement)
	lacks("no type", field.Type == "")
	lacks("a string without maxLength, enum or a format that bounds it",
		field.Type == "string" && field.MaxLength == nil && field.Enum == nil && field.Format != "date-time")
	lacks("a list without maxItems", field.Type == "array" && field.MaxItems == nil)
	lacks("a map without maxProperties", field.AdditionalProperties != nil && field.MaxProperties == nil)
	lacks("an object that takes anything", field.PreserveUnknown || field.Type == "object" && field.Properties == nil && field.AdditionalProperties == nil)
	return out
}

func TestEveryFieldIsBoundedAndDescribed(t *testing.T) {
	for name, root := range schemas(t) {
		fields := 0
		root.walk("", func(path string, field schema) {
			fields++
			for _, what := range missing(path, field) {
				t.Errorf("%s%s", name, what)
			}
		})
		assert.Greater(t, fields, 15, "the walk must have seen the fields of %s", name)
	}
}

// The check above must be able to fail.
func TestMissing(t *testing.T) {
	one := int64(1)
	for name, tc := range map[string]struct {
		path  string
		field schema
		want  []string
	}{
		"fine":       {".a", schema{Description: "d", Type: "string", MaxLength: &one}, nil},
		"string":     {".a", schema{Type: "string"}, []string{".a: no description", ".a: a string without maxLength, enum or a format that bounds it"}},
		"element":    {".a[]", schema{Type: "string"}, []string{".a[]: a string without maxLength, enum or a format that bounds it"}},
		"list":       {".a", schema{Description: "d", Type: "array"}, []string{".a: a list without maxItems"}},
		"map":        {".a", schema{Description: "d", Type: "object", AdditionalProperties: &schema{}}, []string{".a: a map without maxProperties"}},
		"anything":   {".a", schema{Description: "d", Type: "object"}, []string{".a: an object that takes anything"}},
		"no type":    {".a", schema{Description: "d"}, []string{".a: no type"}},
		"timestamp":  {".a", schema{Description: "d", Type: "string", Format: "date-time"}, nil},
		"other date": {".a", schema{Description: "d", Type: "string", Format: "duration"}, []string{".a: a string without maxLength, enum or a format that bounds it"}},
	} {
		assert.Equal(t, tc.want, missing(tc.path, tc.field), name)
	}
}

// A rule that no fixture refuses by its message is not tested.
func TestEveryRuleHasARefusal(t *testing.T) {
	var refusals []string
	for _, tc := range load[createCase](t, "testdata/create.yaml") {
		refusals = append(refusals, tc.Refused)
	}
	for _, tc := range load[updateCase](t, "testdata/update.yaml") {
		refusals = append(refusals, tc.Refused)
	}
	all := strings.Join(refusals, "\n")
	for name, root := range schemas(t) {
		root.walk("", func(path string, field schema) {
			for _, rule := range field.Validations {
				assert.NotEmpty(t, rule.Message, "%s%s: %s", name, path, rule.Rule)
				assert.Contains(t, all, rule.Message, "%s%s: nothing in testdata is refused by this rule", name, path)
			}
		})
	}
}

func managed() map[string]any { return map[string]any{"mode": "Managed", "provider": "pods"} }

func condition(kind, status, reason string) map[string]any {
	return map[string]any{"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}
}

func updateStatus(t *testing.T, o *unstructured.Unstructured, status map[string]any) (*unstructured.Unstructured, error) {
	t.Helper()
	o.Object["status"] = status
	return resource(t, o.GetKind()).UpdateStatus(t.Context(), o, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
}

// Without the subresource each status write would raise the generation, and so
// call the hook again.
func TestStatusIsASubresource(t *testing.T) {
	for kind, tc := range map[string]struct{ spec, status map[string]any }{
		"Proxy":      {managed(), map[string]any{"phase": "Ready"}},
		"ProxyProbe": {map[string]any{"instanceID": "i", "host": "h", "port": int64(1)}, map[string]any{"verdict": "Healthy"}},
	} {
		t.Run(kind, func(t *testing.T) {
			given := object(kind, tc.spec)
			given.Object["status"] = tc.status
			created, err := resource(t, kind).Create(t.Context(), given, strict())
			require.NoError(t, err)
			assert.NotContains(t, created.Object, "status", "a create sets no status")

			edited := created.DeepCopy()
			edited.Object["spec"].(map[string]any)["port"] = int64(9)
			written, err := updateStatus(t, edited, tc.status)
			require.NoError(t, err)
			assert.Equal(t, created.Object["spec"], written.Object["spec"], "a status write changes no spec")
			assert.Equal(t, created.GetGeneration(), written.GetGeneration())

			written.Object["status"] = map[string]any{}
			written.Object["spec"].(map[string]any)["port"] = int64(9)
			updated, err := resource(t, kind).Update(t.Context(), written, metav1.UpdateOptions{})
			require.NoError(t, err)
			assert.Equal(t, tc.status, updated.Object["status"], "an edit changes no status")
			assert.Equal(t, created.GetGeneration()+1, updated.GetGeneration())
		})
	}
}

func TestStatusIsValidated(t *testing.T) {
	for name, tc := range map[string]struct {
		status map[string]any
		want   string
	}{
		"whole": {map[string]any{
			"phase": "Ready", "reason": "ProbeTargetDown", "exitIP": "192.0.2.9", "ip": "127.0.0.1", "port": int64(3128), "providerID": "default/p", "instanceID": "i", "specHash": "v1-x",
			"latencyMillis": int64(0), "lastHealthCheckTime": "2026-01-02T03:04:05Z", "observedGeneration": int64(1),
			"conditions": []any{condition("Provisioned", "True", "Created"), condition("Healthy", "Unknown", "Waiting")},
		}, ""},
		"unknown phase":      {map[string]any{"phase": "Lost"}, `status.phase: Unsupported value: "Lost"`},
		"negative latency":   {map[string]any{"latencyMillis": int64(-1)}, "latencyMillis in body should be greater than or equal to 0"},
		"unknown field":      {map[string]any{"address": "x"}, `unknown field "status.address"`},
		"condition twice":    {map[string]any{"conditions": []any{condition("A", "True", "R"), condition("A", "True", "R")}}, "status.conditions[1]: Duplicate value"},
		"condition's status": {map[string]any{"conditions": []any{condition("A", "Maybe", "R")}}, `status.conditions[0].status: Unsupported value: "Maybe"`},
		"condition's reason": {map[string]any{"conditions": []any{condition("A", "True", "")}}, "conditions[0].reason in body should be at least 1 chars long"},
		"nine conditions":    {map[string]any{"conditions": nineConditions()}, "status.conditions: Too many: 9: must have at most 8 items"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := updateStatus(t, create(t, "Proxy", managed()), tc.status)
			checkRefusal(t, err, tc.want)
		})
	}
}

func nineConditions() []any {
	var out []any
	for _, name := range "ABCDEFGHI" {
		out = append(out, condition(string(name), "True", "R"))
	}
	return out
}

func TestProbeStatusIsValidated(t *testing.T) {
	spec := map[string]any{"instanceID": "i", "host": "h", "port": int64(1)}
	for name, tc := range map[string]struct {
		status map[string]any
		want   string
	}{
		"whole": {map[string]any{
			"instanceID": "i", "verdict": "Unhealthy", "reason": "DialFailed", "message": "m", "latencyMillis": int64(12),
			"lastTransitionTime": "2026-01-02T03:04:05Z", "lastProbeTime": "2026-01-02T03:04:05Z", "exitIP": "192.0.2.9", "observedGeneration": int64(1),
		}, ""},
		"unknown verdict": {map[string]any{"verdict": "Perhaps"}, `status.verdict: Unsupported value: "Perhaps"`},
		"not a time":      {map[string]any{"lastProbeTime": "now"}, "status.lastProbeTime"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := updateStatus(t, create(t, "ProxyProbe", spec), tc.status)
			checkRefusal(t, err, tc.want)
		})
	}
}
