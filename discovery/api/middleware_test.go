package api

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"os"
	"path/filepath"
	"regexp"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/access"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func testLogger(a *api) *slog.Logger { return slog.New(slog.NewJSONHandler(a.logs, nil)) }

func TestHealthzNeedsNoToken(t *testing.T) {
	a := newAPI(t)
	res := a.send(http.MethodGet, "/healthz", "", "Authorization", "")
	assert.Equal(t, http.StatusOK, res.status)
	assert.JSONEq(t, `{"status":"ok"}`, res.body)
}

func TestEverythingElseNeedsTheToken(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	wrong := []string{
		"", "Bearer", "Bearer ", "Bearer wrong", "Basic " + testToken, testToken, "Bearer " + testToken + "x",
		"Bearer " + testToken[:len(testToken)-1], "Bearer " + strings.ToUpper(testToken), "Bearer x " + testToken,
	}
	routes := [][2]string{
		{http.MethodGet, "/v1/proxies"}, {http.MethodPost, "/v1/leases"}, {http.MethodDelete, "/v1/leases/x"},
		{http.MethodPost, "/v1/leases/x/report"}, {http.MethodGet, "/nowhere"}, {http.MethodPut, "/v1/leases"}, {http.MethodGet, "/healthz/"},
	}
	for _, route := range routes {
		for _, header := range wrong {
			res := a.send(route[0], route[1], "{}", "Authorization", header)
			res.problem(http.StatusUnauthorized, codeUnauthorized)
			assert.Equal(t, `Bearer realm="discovery"`, res.header.Get("WWW-Authenticate"))
		}
	}
	for _, header := range []string{"Bearer " + testToken, "bearer " + testToken, "BEARER  " + testToken + " "} {
		assert.Equal(t, http.StatusOK, a.send(http.MethodGet, "/v1/proxies", "", "Authorization", header).status, header)
	}
}

func TestServerRequiresTokensOrInsecure(t *testing.T) {
	_, err := New(Config{})
	assert.ErrorIs(t, err, ErrNoToken)
	a := newAPI(t, func(c *Config) { c.Tokens, c.Insecure = nil, true })
	assert.Equal(t, http.StatusOK, a.send(http.MethodGet, "/v1/proxies", "", "Authorization", "").status)

	guarded := newAPI(t, func(c *Config) { c.Insecure = true })
	guarded.send(http.MethodGet, "/v1/proxies", "", "Authorization", "").problem(http.StatusUnauthorized, codeUnauthorized)
	assert.Equal(t, http.StatusOK, guarded.get("/v1/proxies").status, "tokens that are there count")
}

func TestRequestIDs(t *testing.T) {
	a := newAPI(t)
	ids := map[string]bool{}
	for range 3 {
		ids[a.get("/healthz").header.Get("X-Request-Id")] = true
	}
	assert.Len(t, ids, 3)
	assert.NotContains(t, ids, "")
	for given, kept := range map[string]bool{
		"crawl-7.A_b":           true,
		strings.Repeat("x", 64): true,
		strings.Repeat("x", 65): false,
		"with space":            false,
		"quote\"":               false,
		"<script>":              false,
		"ünicode":               false,
	} {
		got := a.send(http.MethodGet, "/healthz", "", "X-Request-Id", given).header.Get("X-Request-Id")
		assert.Equal(t, kept, got == given, given)
		assert.NotEmpty(t, got)
	}
	assert.NotContains(t, a.logs.String(), "<script>")
}

func TestBodiesAreCapped(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	fits := `{"target":"example.com"` + strings.Repeat(" ", maxBody-24) + `}`
	require.Len(t, fits, maxBody)
	a.lease(fits)
	p := a.post("/v1/leases", fits+" ").problem(http.StatusRequestEntityTooLarge, codeBodyTooLarge)
	assert.Contains(t, p.Detail, "more than 65536 bytes")
	a.report("x", strings.Repeat("x", 2*maxBody)).problem(http.StatusRequestEntityTooLarge, codeBodyTooLarge)

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url+"/v1/leases", io.LimitReader(endless{}, 10<<20))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+testToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.client.Do(req) // chunked: no length is announced
	if err == nil {               // else the server hung up on the client, which is as good
		resp.Body.Close()
		assert.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
	}
}

// endless reads as spaces.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestContentTypes(t *testing.T) {
	a := newAPI(t)
	for _, contentType := range []string{"text/plain", "application/xml", "multipart/form-data; boundary=x", "application/json/x", "nonsense", "application/jsonx"} {
		for _, path := range []string{"/v1/leases", "/v1/leases/x/report"} {
			p := a.send(http.MethodPost, path, `{"result":"ok"}`, "Content-Type", contentType).problem(http.StatusUnsupportedMediaType, codeUnsupportedMediaType)
			assert.Contains(t, p.Detail, "send JSON as application/json")
		}
	}
}

func TestUnknownRoutesListWhatThereIs(t *testing.T) {
	a := newAPI(t)
	for _, path := range []string{"/", "/v1", "/v1/", "/v2/leases", "/v1/proxies/", "/v1/leases/", "/v1/leases/x/report/", "/v1/leases/a/b", "/v1/leases/x/renewed", "//v1/proxies", "/healthz/x"} {
		p := a.get(path).problem(http.StatusNotFound, codeUnknownRoute)
		for _, route := range []string{"GET /healthz", "GET /v1/proxies", "POST /v1/leases", "DELETE /v1/leases/{id}", "POST /v1/leases/{id}/report"} {
			assert.Contains(t, p.Detail, route)
		}
	}
}

func TestMethodNotAllowedListsTheMethods(t *testing.T) {
	a := newAPI(t)
	for path, want := range map[string]string{
		"/healthz":            "GET, HEAD",
		"/v1/proxies":         "GET, HEAD",
		"/v1/leases":          "GET, HEAD, POST",
		"/v1/leases/x":        "GET, HEAD, DELETE",
		"/v1/leases/x%2Fy":    "GET, HEAD, DELETE",
		"/v1/leases/x/renew":  "POST",
		"/v1/leases/x/report": "POST",
	} {
		for _, method := range []string{http.MethodPut, http.MethodPatch, http.MethodOptions, "BREW"} {
			res := a.send(method, path, "")
			p := res.problem(http.StatusMethodNotAllowed, codeMethodNotAllowed)
			assert.Equal(t, want, res.header.Get("Allow"))
			assert.Contains(t, p.Detail, want)
		}
	}
	a.get("/v1/leases/x/renew").problem(http.StatusMethodNotAllowed, codeMethodNotAllowed)
}

func TestHeadIsGetWithoutABody(t *testing.T) {
	a := newAPI(t)
	for _, path := range []string{"/healthz", "/v1/proxies", "/v1/leases"} {
		res := a.send(http.MethodHead, path, "")
		assert.Equal(t, http.StatusOK, res.status)
		assert.Empty(t, res.body)
	}
	assert.Equal(t, http.StatusMethodNotAllowed, a.send(http.MethodHead, "/v1/leases/x/renew", "").status)
}

// TestRequestLog: one line per request, by route, without private data.
func TestRequestLog(t *testing.T) {
	a := newAPI(t)
	a.send(http.MethodDelete, "/v1/leases/some-lease-id?secret=1", "", "X-Request-Id", "req-1", "Cookie", "secret=2")
	a.send(http.MethodGet, "/v9/private/path", "", "X-Request-Id", "req-2")
	lines := map[string]map[string]any{}
	for _, line := range strings.Split(strings.TrimSpace(a.logs.String()), "\n") {
		var entry map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
		if id, ok := entry["request"].(string); ok {
			lines[id] = entry
		}
	}
	assert.Equal(t, "/v1/leases/{id}", lines["req-1"]["route"])
	assert.Equal(t, "DELETE", lines["req-1"]["method"])
	assert.EqualValues(t, 204, lines["req-1"]["status"])
	assert.Equal(t, "unmatched", lines["req-2"]["route"])
	assert.EqualValues(t, 404, lines["req-2"]["status"])
	for _, private := range []string{"some-lease-id", "secret", "/v9/", testToken} {
		assert.NotContains(t, a.logs.String(), private)
	}
}

const (
	readToken  = "CANARY-may-only-read"
	leaseToken = "CANARY-may-also-lease"
	adminToken = "CANARY-may-do-all-else"
	slowToken  = "CANARY-may-not-hurry"
)

// withTokens is a server with a token of each scope, and one with a low rate.
func withTokens(t *testing.T) func(*Config) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`tokens:
- {name: reader, token: `+readToken+`, scopes: [read]}
- {name: crawler, token: `+leaseToken+`, scopes: [lease]}
- {name: operator, token: `+adminToken+`, scopes: [admin]}
- {name: slow, token: `+slowToken+`, scopes: [read], requestsPerSecond: 0.5}
`), 0o600))
	return func(c *Config) {
		tokens, err := access.FromFile(path, 0, nil, nil)
		require.NoError(t, err)
		c.Tokens = tokens
	}
}

func bearing(token string) []string { return []string{"Authorization", "Bearer " + token} }

// TestScopes asks every route with a token of every scope.
func TestScopes(t *testing.T) {
	a := newAPI(t, withTokens(t))
	tokens := map[access.Scope]string{access.ScopeRead: readToken, access.ScopeLease: leaseToken, access.ScopeAdmin: adminToken}
	for _, rt := range (&Server{}).routes() {
		for _, scope := range access.Scopes() {
			res := a.send(rt.method, pathOf(rt.pattern), "", bearing(tokens[scope])...)
			if rt.scope == "" || scope.Includes(rt.scope) {
				assert.NotEqual(t, http.StatusForbidden, res.status, "%s %s", rt.method, rt.pattern)
				assert.NotEqual(t, http.StatusUnauthorized, res.status, "%s %s", rt.method, rt.pattern)
				continue
			}
			p := res.problem(http.StatusForbidden, codeForbidden)
			assert.Contains(t, p.Detail, rt.method+" "+rt.pattern+" needs the scope "+string(rt.scope)+", and the token ")
		}
	}
	assert.NotContains(t, a.logs.String(), "CANARY")
	assert.Contains(t, a.logs.String(), `"token":"crawler"`)
}

var parameter = regexp.MustCompile(`\{\w+\}`)

// pathOf puts something in the place of a pattern's parameters.
func pathOf(pattern string) string {
	return parameter.ReplaceAllString(pattern, "x")
}

// Retry-After is exact, and other tokens are not throttled.
func TestRateLimitPerToken(t *testing.T) {
	a := newAPI(t, withTokens(t))
	list := func() answer { return a.send(http.MethodGet, "/v1/proxies", "", bearing(slowToken)...) }
	assert.Equal(t, http.StatusOK, list().status)
	p := list().problem(http.StatusTooManyRequests, codeTooManyRequests)
	assert.Equal(t, 2, p.RetryAfterSeconds)
	assert.Contains(t, p.Detail, "the token slow is over its rate limit")
	a.clock.Step(1999 * time.Millisecond)
	p = list().problem(http.StatusTooManyRequests, codeTooManyRequests)
	assert.Equal(t, 1, p.RetryAfterSeconds)
	a.clock.Step(time.Millisecond)
	assert.Equal(t, http.StatusOK, list().status)
	for range 20 {
		assert.Equal(t, http.StatusOK, a.send(http.MethodGet, "/v1/proxies", "", bearing(readToken)...).status)
	}
	assert.Equal(t, http.StatusOK, a.send(http.MethodGet, "/healthz", "", bearing(slowToken)...).status)
	wantMetrics(t, a.reg, `
# HELP proxy_operator_token_requests_total Authenticated requests, by token name and outcome: allowed or limited (429).
# TYPE proxy_operator_token_requests_total counter
proxy_operator_token_requests_total{outcome="allowed",token="reader"} 20
proxy_operator_token_requests_total{outcome="allowed",token="slow"} 2
proxy_operator_token_requests_total{outcome="limited",token="slow"} 2
`, "proxy_operator_token_requests_total")
}
