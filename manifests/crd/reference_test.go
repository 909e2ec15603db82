package crd_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/manifests/crd"
)

var update = flag.Bool("update", false, "write docs/reference.md anew")

const referencePage = "../../docs/reference.md"

const referenceHead = `# API reference

Group ` + "`crawl.example.com`" + `, version ` + "`v1alpha1`" + `. Written from the CRDs, which are written from the Go types (` + "`go test ./manifests/crd -run Reference -update`" + `). ` + "`kubectl explain px.spec`" + ` says the same.
`

// definition is as much of a CRD as people read.
type definition struct {
	Metadata struct{ Name string }
	Spec     struct {
		Names struct {
			Kind       string
			ShortNames []string
			Categories []string
		}
		Versions []struct {
			Schema struct {
				OpenAPIV3Schema openAPI `json:"openAPIV3Schema"`
			}
		}
	}
}

func (d definition) schema() openAPI { return d.Spec.Versions[0].Schema.OpenAPIV3Schema }

type openAPI struct {
	Description          string
	Type                 string
	Format               string
	Properties           map[string]openAPI
	Items                *openAPI
	AdditionalProperties *openAPI
	Required             []string
	Enum                 []any
	Default              any
	Minimum, Maximum     *float64
	MaxItems             *int
	MaxProperties        *int
	Validations          []struct{ Message string } `json:"x-kubernetes-validations"`
}

// kinds decodes our CRDs.
func kinds(t *testing.T) []definition {
	t.Helper()
	var all []definition
	for _, manifest := range crd.Manifests() {
		var d definition
		require.NoError(t, yaml.Unmarshal(manifest, &d))
		require.Len(t, d.Spec.Versions, 1)
		all = append(all, d)
	}
	require.NotEmpty(t, all)
	return all
}

// field is one field of a kind, by its path.
type field struct {
	path     string
	required bool
	schema   openAPI
}

// fields lists everything below a schema, depth first, in the order of names.
func fields(path string, schema openAPI) []field {
	var all []field
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name]
		at := strings.TrimPrefix(path+"."+name, ".")
		all = append(all, field{at, slices.Contains(schema.Required, name), property})
		if path == "" && name == "metadata" {
			continue
		}
		all = append(all, fields(at, property)...)
		if property.Items != nil {
			all = append(all, fields(at+"[]", *property.Items)...)
		}
	}
	return all
}

// kubectl explain has a text for every field.
func TestEveryFieldIsExplained(t *testing.T) {
	for _, d := range kinds(t) {
		schema := d.schema()
		assert.NotEmpty(t, schema.Description, d.Metadata.Name)
		all := fields("", schema)
		assert.Greater(t, len(all), 20, d.Metadata.Name)
		for _, f := range all {
			if f.path == "metadata" { // the API server's own
				continue
			}
			assert.Greater(t, len(f.schema.Description), 10, "%s: %s says nothing of itself", d.Metadata.Name, f.path)
		}
	}
}

func TestReferenceIsCurrent(t *testing.T) {
	var page strings.Builder
	page.WriteString(referenceHead)
	for _, d := range kinds(t) {
		schema := d.schema()
		fmt.Fprintf(&page, "\n## %s\n\n%s Short name `%s`.\n", d.Spec.Names.Kind, oneLine(schema.Description), strings.Join(d.Spec.Names.ShortNames, "`, `"))
		for _, part := range []string{"spec", "status"} {
			fmt.Fprintf(&page, "\n### %s.%s\n\n%s\n\n| field | type | meaning |\n| --- | --- | --- |\n", d.Spec.Names.Kind, part, oneLine(schema.Properties[part].Description))
			for _, f := range fields("", schema.Properties[part]) {
				fmt.Fprintf(&page, "| `%s` | %s | %s |\n", f.path, typeOf(t, f), tableCell(f.schema.Description))
			}
			for _, rule := range schema.Properties[part].Validations {
				fmt.Fprintf(&page, "\n- %s", oneLine(rule.Message))
			}
			if len(schema.Properties[part].Validations) > 0 {
				page.WriteString("\n")
			}
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(referencePage, []byte(page.String()), 0o644))
		return
	}
	content, err := os.ReadFile(referencePage)
	require.NoError(t, err)
	assert.Equal(t, page.String(), string(content), "run: go test ./manifests/crd -run Reference -update")
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// tableCell is text for a table.
func tableCell(text string) string { return strings.ReplaceAll(oneLine(text), "|", `\|`) }

// typeOf is the type of a field.
func typeOf(t *testing.T, f field) string {
	t.Helper()
	s := f.schema
	kind := s.Type
	switch {
	case s.Items != nil:
		kind = "list of " + s.Items.Type
	case s.AdditionalProperties != nil:
		kind = "map of " + s.AdditionalProperties.Type
	case s.Format == "date-time":
		kind = "time"
	}
	var notes []string
	if f.required {
		notes = append(notes, "required")
	}
	if len(s.Enum) > 0 {
		var values []string
		for _, value := range s.Enum {
			values = append(values, fmt.Sprintf("`%v`", value))
		}
		notes = append(notes, "one of "+strings.Join(values, ", "))
	}
	if s.Default != nil {
		text, err := json.Marshal(s.Default)
		require.NoError(t, err)
		notes = append(notes, "default `"+string(text)+"`")
	}
	if s.Minimum != nil && s.Maximum != nil {
		notes = append(notes, fmt.Sprintf("%.0f to %.0f", *s.Minimum, *s.Maximum))
	}
	if s.MaxItems != nil {
		notes = append(notes, fmt.Sprintf("at most %d", *s.MaxItems))
	}
	if s.MaxProperties != nil {
		notes = append(notes, fmt.Sprintf("at most %d", *s.MaxProperties))
	}
	return strings.Join(append([]string{kind}, notes...), "; ")
}
