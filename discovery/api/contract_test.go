package api

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// contract is the served description of the API, to hold real answers against.
type contract struct {
	doc      map[string]any
	compiler *jsonschema.Compiler

	mu      sync.Mutex
	schemas map[string]*jsonschema.Schema
}

var loadContract = sync.OnceValues(func() (*contract, error) {
	text, err := openAPIDocument()
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := &contract{doc: doc.(map[string]any), compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}}
	c.compiler.DefaultDraft(jsonschema.Draft2020) // as OpenAPI 3.1 has it
	c.compiler.AssertFormat()
	return c, c.compiler.AddResource("openapi.json", doc)
})

func theContract(t testing.TB) *contract {
	t.Helper()
	c, err := loadContract()
	require.NoError(t, err)
	return c
}

// at follows names through objects, and references on the way. It returns nil
// when there is nothing, and where it ended.
func (c *contract) at(names ...string) (any, string) {
	var here any = c.doc
	pointer := ""
	for _, name := range names {
		obj, _ := here.(map[string]any)
		here = obj[name]
		pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		if obj, ok := here.(map[string]any); ok && len(names) > 0 {
			if ref, ok := obj["$ref"].(string); ok && !strings.HasPrefix(ref, "#/components/schemas/") {
				here, pointer = c.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			}
		}
	}
	return here, pointer
}

func (c *contract) schema(t testing.TB, pointer string) *jsonschema.Schema {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.schemas[pointer]; s != nil {
		return s
	}
	s, err := c.compiler.Compile("openapi.json#" + (&url.URL{Path: pointer}).EscapedPath())
	require.NoError(t, err)
	c.schemas[pointer] = s
	return s
}

func (c *contract) paths() map[string]any { return c.doc["paths"].(map[string]any) }

// pattern finds the path of the description that a request is for, "" for none.
func (c *contract) pattern(path string) string {
	path, _, _ = strings.Cut(path, "?")
	given := strings.Split(path, "/")
	for pattern := range c.paths() {
		wanted := strings.Split(pattern, "/")
		if slices.EqualFunc(given, wanted, func(g, w string) bool { return g == w || strings.HasPrefix(w, "{") && g != "" }) {
			return pattern
		}
	}
	return ""
}

// check holds an answer against the description: its status, type, headers and
// every field of its body.
func (c *contract) check(t testing.TB, method, path string, res answer) {
	t.Helper()
	if method == http.MethodHead {
		method = http.MethodGet
		if res.status >= http.StatusBadRequest {
			return // no body
		}
	}
	problem := c.schema(t, "/components/schemas/Problem")
	pattern := c.pattern(path)
	var operation any // methods are case-sensitive, and described in lower case
	if method == strings.ToUpper(method) {
		operation, _ = c.at("paths", pattern, strings.ToLower(method))
	}
	switch {
	case pattern == "" && res.status == http.StatusNotFound, operation == nil && res.status == http.StatusMethodNotAllowed,
		operation == nil && res.status == http.StatusUnauthorized:
		c.body(t, problem, res)
		return
	case operation == nil:
		t.Errorf("%s %s is not in the description, and was answered with %d", method, path, res.status)
		return
	}
	responses := []string{"paths", pattern, strings.ToLower(method), "responses", fmt.Sprint(res.status)}
	found, _ := c.at(responses...)
	if !assert.NotNil(t, found, "%s %s: the description has no status %d", method, path, res.status) {
		return
	}
	c.headers(t, responses, res)
	kind := res.header.Get("Content-Type")
	content, _ := c.at(append(responses, "content")...)
	if content == nil {
		assert.Empty(t, res.body, "%s %s: %d has no body", method, path, res.status)
		return
	}
	schema, pointer := c.at(append(responses, "content", kind, "schema")...)
	if assert.NotNil(t, schema, "%s %s: the description has no %q for %d", method, path, kind, res.status) && res.body != "" {
		c.body(t, c.schema(t, pointer), res)
	}
}

func (c *contract) body(t testing.TB, schema *jsonschema.Schema, res answer) {
	t.Helper()
	body, err := jsonschema.UnmarshalJSON(strings.NewReader(res.body))
	if assert.NoError(t, err, res.body) {
		assert.NoError(t, schema.Validate(body), res.body)
	}
}

// headers wants those that have a meaning to be described, and those that are
// described to be there.
func (c *contract) headers(t testing.TB, responses []string, res answer) {
	t.Helper()
	for _, name := range []string{"Location", "Etag", "Retry-After", "Www-Authenticate"} {
		described := false
		headers, _ := c.at(append(responses, "headers")...)
		for h := range asObject(headers) {
			described = described || http.CanonicalHeaderKey(h) == name
		}
		there := res.header.Get(name) != ""
		optional := name == "Retry-After" // not where trying again is no use
		assert.True(t, described || !there, "%v does not mention the header %s", responses, name)
		assert.True(t, there || !described || optional, "%v promises the header %s", responses, name)
	}
}

func asObject(v any) map[string]any {
	obj, _ := v.(map[string]any)
	return obj
}

// properties lists the members of a schema and of the one that it extends.
func (c *contract) properties(name string) (out []string) {
	schema, _ := c.at("components", "schemas", name)
	for p := range asObject(asObject(schema)["properties"]) {
		out = append(out, p)
	}
	if base, ok := asObject(schema)["$ref"].(string); ok {
		out = append(out, c.properties(base[strings.LastIndex(base, "/")+1:])...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
