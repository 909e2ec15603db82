package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/access"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// TestEveryRouteIsDescribed walks the router.
func TestEveryRouteIsDescribed(t *testing.T) {
	a := newAPI(t)
	var real, described []string
	require.NoError(t, chi.Walk(a.server.Handler().(chi.Routes), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		real = append(real, method+" "+route)
		return nil
	}))
	c := theContract(t)
	for pattern, item := range c.paths() {
		for method := range asObject(item) {
			if method != "parameters" {
				described = append(described, strings.ToUpper(method)+" "+pattern)
			}
		}
	}
	assert.ElementsMatch(t, real, described)

	res := a.send(http.MethodGet, "/openapi.json", "", "Authorization", "")
	require.Equal(t, http.StatusOK, res.status)
	assert.Contains(t, res.body, `"openapi":"3.1.0"`)
	for _, rt := range a.server.table { // who may do what
		op, _ := c.at("paths", rt.pattern, strings.ToLower(rt.method))
		summary := asObject(op)["summary"].(string)
		if rt.scope == "" {
			assert.Contains(t, summary, "Needs no token")
			assert.Equal(t, []any{}, asObject(op)["security"])
			continue
		}
		assert.Contains(t, summary, "Needs the scope "+string(rt.scope))
	}
}

// TestEverySchemaIsOne compiles all, and all references in them.
func TestEverySchemaIsOne(t *testing.T) {
	c := theContract(t)
	schemas, _ := c.at("components", "schemas")
	require.NotEmpty(t, schemas)
	for name := range asObject(schemas) {
		c.schema(t, "/components/schemas/"+name)
	}
}

// own lists the JSON names of a struct's own and embedded fields.
func own(v any) (out []string) {
	typ := reflect.TypeOf(v)
	for i := range typ.NumField() {
		f := typ.Field(i)
		if !f.IsExported() && !f.Anonymous {
			continue
		}
		if f.Anonymous {
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			out = append(out, own(reflect.Zero(inner).Interface())...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// TestEveryFieldIsDescribed compares the fields of bodies with the schemas, in both
// directions.
func TestEveryFieldIsDescribed(t *testing.T) {
	c := theContract(t)
	for name, v := range map[string]any{
		"ProxyList": listBody{}, "ListedProxy": listedProxy{}, "LeasedProxy": leasedProxy{}, "Lease": leaseStatusBody{}, "ProxyStatus": proxyStatus{}, "Grant": grantBody{},
		"LeaseList": leaseListBody{}, "ListedLease": listedLease{}, "CooldownList": cooldownListBody{}, "Cooldown": listedCooldown{}, "EndedCooldowns": endedBody{},
	} {
		assert.Equal(t, own(v), c.properties(name), name)
	}
	all := append(append(c.properties("Problem"), c.properties("LeaseGone")...), c.properties("NoMatch")...)
	slices.Sort(all)
	assert.Equal(t, own(problem{}), slices.Compact(all))

	for name, path := range map[string]string{"LeaseRequest": "/v1/leases", "RenewRequest": "/v1/leases/x/renew", "Report": "/v1/leases/x/report"} {
		res := newAPI(t).post(path, `{"nonsense":1}`)
		assert.Contains(t, res.body, "known are "+strings.Join(c.properties(name), ", ")+`"`)
	}
	for path, known := range map[string][]string{
		"/v1/proxies get": listParameters, "/v1/leases get": leaseParameters, cooldownsPath + " get": nil, cooldownsPath + " delete": {"target"},
	} {
		path, method, _ := strings.Cut(path, " ")
		var query []string
		params, _ := c.at("paths", path, method, "parameters")
		list, _ := params.([]any)
		for _, p := range list {
			if asObject(p)["in"] == "query" {
				query = append(query, asObject(p)["name"].(string))
			}
		}
		assert.ElementsMatch(t, known, query, path)
	}
}

func TestEveryWordIsDescribed(t *testing.T) {
	c := theContract(t)
	enum := func(names ...string) (out []string) {
		v, _ := c.at(append([]string{"components", "schemas"}, names...)...)
		for _, word := range asObject(v)["enum"].([]any) {
			out = append(out, word.(string))
		}
		return out
	}
	var codes, results, stages []string
	for code := range problems {
		codes = append(codes, string(code))
	}
	for _, r := range lease.Results() {
		results = append(results, string(r))
	}
	for _, p := range phases {
		stages = append(stages, string(p))
	}
	assert.ElementsMatch(t, codes, enum("ProblemMembers", "properties", "error"))
	assert.ElementsMatch(t, results, enum("Report", "properties", "result"))
	assert.ElementsMatch(t, stages, enum("Phase"))
	reasons := []string{string(lease.EndExpired), string(lease.EndReplaced), string(lease.EndGone), string(lease.EndDeleted)}
	assert.ElementsMatch(t, reasons, enum("LeaseGone", "properties", "reason"))
	description, _ := c.at("components", "securitySchemes", "bearer", "description")
	for _, scope := range access.Scopes() {
		assert.Contains(t, description, string(scope))
	}
}

// TestEveryStatusOfEveryRouteIsReal provokes all that the description promises.
// That nothing else comes is checked with every answer of every test.
func TestEveryStatusOfEveryRouteIsReal(t *testing.T) {
	c := theContract(t)
	for pattern, item := range c.paths() {
		for method := range asObject(item) {
			responses, _ := c.at("paths", pattern, method, "responses")
			for status := range asObject(responses) {
				res := provoke(t, strings.ToUpper(method), pattern, status)
				assert.Equal(t, status, fmt.Sprint(res.status), "%s %s: %s", method, pattern, res.body)
			}
		}
	}
}

// provoke gets an answer with this status.
func provoke(t *testing.T, method, pattern, status string) answer {
	body := map[string]string{"/v1/leases": `{}`, "/v1/leases/{id}/report": `{"result":"ok"}`}[pattern]
	if method != http.MethodPost {
		body = ""
	}
	path := strings.NewReplacer("{id}", "x", "{namespace}", "crawl", "{name}", "a").Replace(pattern)
	switch status {
	case "401":
		return newAPI(t).send(method, path, body, "Authorization", "")
	case "403":
		return newAPI(t, withTokens(t)).send(method, path, body, bearing(readToken)...)
	case "429":
		a := newAPI(t, withTokens(t))
		a.send(method, path, body, bearing(slowToken)...)
		return a.send(method, path, body, bearing(slowToken)...)
	case "413":
		return newAPI(t).send(method, path, strings.Repeat(" ", maxBody+1))
	case "415":
		return newAPI(t).send(method, path, body, "Content-Type", "text/plain")
	case "500":
		a := newAPI(t, withStore(brokenStore{}))
		a.fleet.set(aProxy("a"))
		return a.send(method, path, body)
	case "503":
		a := newAPI(t, withStore(brokenStore{err: errors.New("the disk is full")}))
		a.fleet.set(aProxy("a"))
		return a.send(method, path, body)
	}
	return provokeWithALease(t, method, pattern, status, body)
}

func provokeWithALease(t *testing.T, method, pattern, status, body string) answer {
	a := newAPI(t)
	a.fleet.set(aProxy("a"), aProxy("b"))
	grant := a.send(http.MethodPost, "/v1/leases", `{}`, keyHeader, "k")
	var g grantBody
	grant.into(&g)
	path := strings.NewReplacer("{id}", g.LeaseID, "{namespace}", "crawl", "{name}", "a").Replace(pattern)
	switch status {
	case "304":
		return a.send(method, path, body, "If-None-Match", "*")
	case "400":
		if method != http.MethodPost {
			return a.send(method, path+"?nonsense=1", body)
		}
		return a.send(method, path, "nonsense")
	case "404":
		return a.send(method, parameter.ReplaceAllString(pattern, "unknown"), body)
	case "409":
		a.lease(`{}`)
		return a.send(method, path, body)
	case "410":
		a.fleet.set()
		return a.send(method, path, body)
	case "422":
		return a.send(method, path, `{"target":"other.example"}`, keyHeader, "k")
	}
	return a.send(method, path, body)
}

func TestAcceptedRequestsMatchTheSchemas(t *testing.T) {
	request := theContract(t).schema(t, "/components/schemas/LeaseRequest")
	for body, ok := range map[string]bool{
		`{}`: true, `{"selector":{"geo":"eu"},"ttlSeconds":60,"target":"https://x.example/","wait":30,"session":"s","exclude":["a/b"],"schemes":["http"],"waitForMatch":true}`: true,
		`{"wait":31}`: false, `{"wait":-1}`: false, `{"ttlSeconds":0}`: false, `{"exclude":["a"]}`: false, `{"selector":{"a":1}}`: false, `{"x":1}`: false,
		`{"selector":{"":"x"}}`: false, `{"session":7}`: false, `{"schemes":["ftp"]}`: false, `{"schemes":[]}`: false, `{"waitForMatch":"yes"}`: false,
	} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
		require.NoError(t, err)
		assert.Equal(t, ok, request.Validate(v) == nil, body)
		a := newAPI(t)
		a.fleet.set(aProxy("a"))
		a.fleet.fail(errNotSyncedYet())
		want := http.StatusBadRequest
		if ok {
			want = http.StatusServiceUnavailable
		}
		assert.Equal(t, want, a.post("/v1/leases", body).status, body)
	}
	require.True(t, json.Valid(newAPI(t).server.document))
}
