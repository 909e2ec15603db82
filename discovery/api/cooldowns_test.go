package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Retry-After is when a session is evicted, and other tokens are not affected.
func TestSessionLimit(t *testing.T) {
	a := newAPI(t, withTokens(t), withLimits(lease.Limits{Sessions: 2, TargetsPerProxy: 9, Targets: 9}))
	a.fleet.set(aProxy("a", withMaxLeases(9)))
	ask := func(token, body string) answer { return a.send(http.MethodPost, "/v1/leases", body, bearing(token)...) }
	var first grantBody
	ask(leaseToken, `{"session":"one","ttlSeconds":60}`).into(&first)
	assert.Equal(t, http.StatusCreated, ask(leaseToken, `{"session":"two","ttlSeconds":90}`).status)

	for _, body := range []string{`{"session":"three"}`, `{"session":"three","wait":30}`} { // waiting is not what it takes
		p := ask(leaseToken, body).problem(http.StatusTooManyRequests, codeTooManySessions)
		assert.Equal(t, 60+600, p.RetryAfterSeconds)
		assert.Contains(t, p.Detail, "limit reached: 2 sessions of the token")
	}
	assert.Equal(t, http.StatusCreated, ask(leaseToken, `{"session":"two"}`).status)
	assert.Equal(t, http.StatusCreated, ask(leaseToken, `{}`).status)
	assert.Equal(t, http.StatusCreated, ask(adminToken, `{"session":"three"}`).status)

	a.send(http.MethodDelete, "/v1/leases/"+first.LeaseID, "", bearing(leaseToken)...)
	p := ask(leaseToken, `{"session":"three"}`).problem(http.StatusTooManyRequests, codeTooManySessions)
	assert.Equal(t, 600, p.RetryAfterSeconds, "a release ends a session early")
	a.clock.Step(600 * time.Second)
	assert.Equal(t, http.StatusCreated, ask(leaseToken, `{"session":"three"}`).status)
}

// TestCooldownsAreLimited: a report that cannot be kept is not taken for one that
// was.
func TestCooldownsAreLimited(t *testing.T) {
	a := newAPI(t, withLimits(lease.Limits{Sessions: 9, TargetsPerProxy: 1, Targets: 9}))
	a.fleet.set(aProxy("a", withMaxLeases(9)))
	g := a.lease(`{"ttlSeconds":3600}`)
	assert.Equal(t, http.StatusNoContent, a.report(g.LeaseID, `{"result":"banned","target":"one.example"}`).status)
	a.clock.Step(time.Minute)
	p := a.report(g.LeaseID, `{"result":"banned","target":"two.example"}`).problem(http.StatusTooManyRequests, codeTooManyCooldowns)
	assert.Equal(t, 540, p.RetryAfterSeconds)
	assert.Contains(t, p.Detail, "limit reached: 1 targets in cooldown on the proxy")
	assert.Equal(t, 1, a.refused(`{"target":"one.example"}`).InCooldown, "which goes on")
	a.lease(`{"target":"two.example"}`)
	assert.Equal(t, http.StatusNoContent, a.report(g.LeaseID, `{"result":"connect_error","target":"two.example"}`).status, "all targets are one")

	a.clock.Step(540 * time.Second)
	assert.Equal(t, http.StatusNoContent, a.report(g.LeaseID, `{"result":"banned","target":"two.example"}`).status)
	wantMetrics(t, a.reg, `
# HELP proxy_operator_cooldowns Active cooldowns, each of one proxy for one target or for all targets.
# TYPE proxy_operator_cooldowns gauge
proxy_operator_cooldowns 1
# HELP proxy_operator_sessions Sessions of all tokens.
# TYPE proxy_operator_sessions gauge
proxy_operator_sessions 0
`, "proxy_operator_cooldowns", "proxy_operator_sessions")
}
