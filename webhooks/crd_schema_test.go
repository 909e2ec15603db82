package webhooks

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// schema is as much of a CRD's OpenAPI schema as our CRDs use.
type schema struct {
	Type                 string            `json:"type"`
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties *schema           `json:"additionalProperties"`
	Items                *schema           `json:"items"`
	Required             []string          `json:"required"`
	Enum                 []any             `json:"enum"`
	Pattern              string            `json:"pattern"`
	MinLength            int               `json:"minLength"`
	MaxLength            *int              `json:"maxLength"`
	Minimum              *float64          `json:"minimum"`
	Maximum              *float64          `json:"maximum"`
	MaxItems             *int              `json:"maxItems"`
}

// crdSchema reads the schema of the one version in a generated CRD.
func crdSchema(t testing.TB, file string) schema {
	t.Helper()
	b, err := os.ReadFile("../manifests/crd/" + file)
	require.NoError(t, err)
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	require.NoError(t, yaml.Unmarshal(b, &crd))
	require.Len(t, crd.Spec.Versions, 1)
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

func proxySchema(t testing.TB) schema { return crdSchema(t, "crawl.example.com_proxies.yaml") }
func probeSchema(t testing.TB) schema { return crdSchema(t, "crawl.example.com_proxyprobes.yaml") }

// check returns everything in v, decoded from JSON, that the API server would
// prune or refuse.
func (s schema) check(at string, v any) []string {
	switch v := v.(type) {
	case map[string]any:
		return s.checkObject(at, v)
	case []any:
		var out []string
		if s.Type != "array" || s.MaxItems != nil && len(v) > *s.MaxItems {
			out = append(out, at+": too many items, or no array wanted")
		}
		for i, e := range v {
			out = append(out, s.Items.check(fmt.Sprintf("%s[%d]", at, i), e)...)
		}
		return out
	case string:
		return s.checkString(at, v)
	case float64:
		if s.Type != "integer" && s.Type != "number" || s.Minimum != nil && v < *s.Minimum || s.Maximum != nil && v > *s.Maximum {
			return []string{fmt.Sprintf("%s: %v is out of bounds or no number wanted", at, v)}
		}
	case bool:
		if s.Type != "boolean" {
			return []string{at + ": no boolean wanted"}
		}
	default:
		return []string{fmt.Sprintf("%s: %T", at, v)}
	}
	return nil
}

func (s schema) checkObject(at string, v map[string]any) []string {
	var out []string
	if s.Type != "object" {
		out = append(out, at+": no object wanted")
	}
	for _, name := range s.Required {
		if _, found := v[name]; !found {
			out = append(out, at+"."+name+": is missing")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		field, found := s.Properties[name]
		switch {
		case found:
			out = append(out, field.check(at+"."+name, v[name])...)
		case s.AdditionalProperties != nil:
			out = append(out, s.AdditionalProperties.check(at+"."+name, v[name])...)
		case at != ".metadata":
			out = append(out, at+"."+name+": is not in the schema")
		}
	}
	return out
}

func (s schema) checkString(at, v string) []string {
	var out []string
	if s.Type != "string" {
		out = append(out, at+": no string wanted")
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, any(v)) {
		out = append(out, fmt.Sprintf("%s: %q is not one of %v", at, v, s.Enum))
	}
	if len(v) < s.MinLength || s.MaxLength != nil && len(v) > *s.MaxLength {
		out = append(out, fmt.Sprintf("%s: %q has a bad length", at, v))
	}
	if s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(v) {
		out = append(out, fmt.Sprintf("%s: %q does not match %s", at, v, s.Pattern))
	}
	return out
}

// decoded is v as the API server would see it.
func decoded(t testing.TB, v any) any {
	t.Helper()
	var out any
	require.NoError(t, json.Unmarshal(mustJSON(t, v), &out))
	return out
}

func TestSchemaCheckFindsMistakes(t *testing.T) {
	s := proxySchema(t).Properties["status"]
	require.Empty(t, s.check("", decoded(t, map[string]any{"phase": "Ready", "port": 3128, "conditions": []any{}})))
	for name, status := range map[string]any{
		"unknown field": map[string]any{"leases": 1},
		"enum":          map[string]any{"phase": "Great"},
		"bounds":        map[string]any{"port": 70000},
		"type":          map[string]any{"ip": 1},
		"nested":        map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "not a reason", "message": "", "lastTransitionTime": "x"}}},
		"missing":       map[string]any{"conditions": []any{map[string]any{"type": "Ready"}}},
	} {
		require.NotEmpty(t, s.check("", decoded(t, status)), name)
	}
}
