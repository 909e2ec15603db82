package api

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/access"
)

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
			if rt.needs == "" || scope.Includes(rt.needs) {
				assert.NotEqual(t, http.StatusForbidden, res.status, "%s %s", rt.method, rt.pattern)
				assert.NotEqual(t, http.StatusUnauthorized, res.status, "%s %s", rt.method, rt.pattern)
				continue
			}
			p := res.problem(http.StatusForbidden, codeForbidden)
			assert.Contains(t, p.Detail, rt.method+" "+rt.pattern+" needs the scope "+string(rt.needs)+", and the token ")
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

// TestRatePerToken: the wait that is told is the wait that is needed, and no
// other token is touched.
func TestRatePerToken(t *testing.T) {
	a := newAPI(t, withTokens(t))
	list := func() answer { return a.send(http.MethodGet, "/v1/proxies", "", bearing(slowToken)...) }
	assert.Equal(t, http.StatusOK, list().status)
	p := list().problem(http.StatusTooManyRequests, codeTooManyRequests)
	assert.Equal(t, 2, p.RetryAfterSeconds)
	assert.Contains(t, p.Detail, "the token slow sends more requests than it may")
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
# HELP proxy_operator_token_requests_total Requests that bore a known token, by its name and by whether they were let through: allowed or limited (429).
# TYPE proxy_operator_token_requests_total counter
proxy_operator_token_requests_total{outcome="allowed",token="reader"} 20
proxy_operator_token_requests_total{outcome="allowed",token="slow"} 2
proxy_operator_token_requests_total{outcome="limited",token="slow"} 2
`, "proxy_operator_token_requests_total")
}
