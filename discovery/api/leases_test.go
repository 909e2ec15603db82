package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"context"
	"fmt"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReleaseIsAlwaysDone(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	g := a.lease(`{}`)
	for _, id := range []string{g.LeaseID, g.LeaseID, "never-granted", strings.Repeat("x", 4000), "%2F..%2F"} {
		res := a.delete("/v1/leases/" + id)
		assert.Equal(t, http.StatusNoContent, res.status)
		assert.Empty(t, res.body)
		assert.Empty(t, res.header.Get("Content-Type"))
	}
	a.lease(`{}`)
}

func TestReportCools(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a", withMaxLeases(9)), aProxy("b", withMaxLeases(9)))
	g := a.lease(`{"target":"example.com"}`)
	require.Equal(t, "a", g.Proxy.Name)
	res := a.report(g.LeaseID, `{"result":"rate_limited"}`)
	require.Equal(t, http.StatusNoContent, res.status, res.body)
	assert.Empty(t, res.body)

	for range 3 {
		assert.Equal(t, "b", a.lease(`{"target":"http://EXAMPLE.com:8080/"}`).Proxy.Name, "another proxy for that target")
	}
	assert.Equal(t, "a", a.lease(`{"target":"other.example"}`).Proxy.Name, "the same one for others")
}

func TestReportNamesItsTarget(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a", withMaxLeases(9)))
	g := a.lease(`{"target":"leased.example"}`)
	require.Equal(t, http.StatusNoContent, a.report(g.LeaseID, `{"result":"banned","target":"https://Reported.example:443/x"}`).status)
	a.lease(`{"target":"leased.example"}`)
	assert.Equal(t, 1, a.refused(`{"target":"reported.example"}`).InCooldown)

	require.Equal(t, http.StatusNoContent, a.report(a.lease(`{}`).LeaseID, `{"result":"banned"}`).status)
	p := a.refused(`{"target":"leased.example"}`)
	assert.Contains(t, p.Detail, "1 in cooldown for leased.example until")
	assert.Contains(t, a.refused(`{}`).Detail, "1 in cooldown for all targets until")
}

func TestReportsThatComeLate(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	g := a.lease(`{"ttlSeconds":60}`)
	a.clock.Step(time.Minute)
	next := a.lease(`{"target":"example.com"}`)
	assert.Equal(t, http.StatusNoContent, a.report(g.LeaseID, `{"result":"ok"}`).status)
	assert.Equal(t, http.StatusNoContent, a.delete("/v1/leases/"+g.LeaseID).status)
	assert.Equal(t, 1, a.refused(`{}`).AtCapacity, "the successor keeps its lease")

	a.report(g.LeaseID, `{"result":"ok"}`).problem(http.StatusNotFound, codeUnknownLease)
	a.clock.Step(5*time.Minute + testWindow)
	a.report(next.LeaseID, `{"result":"banned"}`).problem(http.StatusNotFound, codeUnknownLease)
}

func TestReportRefusesResultsItDoesNotKnow(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	g := a.lease(`{}`)
	for _, body := range []string{`{"result":"blocked"}`, `{"result":""}`, `{"result":"OK"}`, `{"target":"example.com"}`, `{}`} {
		p := a.report(g.LeaseID, body).problem(http.StatusBadRequest, codeInvalidResult)
		assert.Contains(t, p.Detail, `want one of ["ok" "rate_limited" "banned" "captcha" "target_timeout" "target_unreachable" "proxy_timeout" "connect_error"]`)
	}
	a.report("never-granted", `{"result":"blocked"}`).problem(http.StatusBadRequest, codeInvalidResult)
	a.report("never-granted", `{"result":"ok"}`).problem(http.StatusNotFound, codeUnknownLease)
}

// TestLeasesEndWithoutTheFleet: while it is not known, nothing is granted, but
// what was granted can still be given back.
func TestLeasesEndWithoutTheFleet(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	g := a.lease(`{}`)
	a.fleet.fail(errNotSyncedYet())
	assert.Equal(t, http.StatusNoContent, a.report(g.LeaseID, `{"result":"ok"}`).status)
	assert.Equal(t, http.StatusNoContent, a.delete("/v1/leases/"+g.LeaseID).status)
}

// The target has sent "429, Retry-After: 7".
func TestReportNamesTheLengthOfItsCooldown(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a", withMaxLeases(9)))
	g := a.lease(`{"target":"example.com"}`)
	require.Equal(t, http.StatusNoContent, a.report(g.LeaseID, `{"result":"rate_limited","retryAfterSeconds":7}`).status)
	assert.Equal(t, 7, a.refused(`{"target":"example.com"}`).RetryAfterSeconds)
	a.clock.Step(7 * time.Second)
	a.lease(`{"target":"example.com"}`)
	require.Equal(t, http.StatusNoContent, a.report(g.LeaseID, `{"result":"banned","retryAfterSeconds":99999999999999999999}`).status)
	assert.Equal(t, 3600, a.refused(`{"target":"example.com"}`).RetryAfterSeconds, "more is cut")

	for body, want := range map[string]string{
		`{"result":"ok","retryAfterSeconds":7}`:             "leave it out of a report of ok",
		`{"result":"connect_error","retryAfterSeconds":7}`:  "leave it out of a report of connect_error",
		`{"result":"banned","retryAfterSeconds":0}`:         "retryAfterSeconds is 0; want 1 or more",
		`{"result":"rate_limited","retryAfterSeconds":-1}`:  "retryAfterSeconds is -1; want 1 or more",
		`{"result":"rate_limited","retryAfterSeconds":"7"}`: `field "retryAfterSeconds": want a whole number, got string`,
		`{"result":"rate_limited","retryAfterSeconds":1.5}`: `field "retryAfterSeconds": want a whole number`,
	} {
		assert.Contains(t, a.report(g.LeaseID, body).problem(http.StatusBadRequest, codeInvalidRequest).Detail, want)
	}
}

func TestReportOfAnUnreachableTargetRestsForThatTarget(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a", withMaxLeases(9)))
	g := a.lease(`{"target":"example.com"}`)
	require.Equal(t, http.StatusNoContent, a.report(g.LeaseID, `{"result":"target_unreachable","target":"dead.example"}`).status)
	assert.Equal(t, 30, a.refused(`{"target":"dead.example"}`).RetryAfterSeconds)
	a.lease(`{"target":"example.com"}`)
	a.lease(`{}`)
}

// hangingUp is a store whose every grant comes just too late.
type hangingUp struct {
	lease.Store
	hangUp context.CancelFunc
}

func (h hangingUp) Acquire(ctx context.Context, req lease.Request) (lease.Lease, error) {
	l, err := h.Store.Acquire(ctx, req)
	h.hangUp()
	return l, err
}

func (a *api) renew(id, body string) leaseStatusBody {
	a.Helper()
	res := a.post("/v1/leases/"+id+"/renew", body)
	require.Equal(a, http.StatusOK, res.status, res.body)
	var l leaseStatusBody
	res.into(&l)
	return l
}

func withInstance(id string) func(*fleet.Proxy) {
	return func(p *fleet.Proxy) { p.Instance.ID = id }
}

func TestRenewAndGet(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	g := a.lease(`{"ttlSeconds":60,"target":"shop.example","session":"s"}`)
	a.clock.Step(50 * time.Second)

	l := a.renew(g.LeaseID, "")
	want := leaseStatusBody{g.leaseBody, proxyStatus{"Healthy", "ProbeSucceeded", true, "probes through it succeed (ProbeSucceeded)"}}
	want.ExpiresAt = testStart.Add(110 * time.Second)
	assert.Equal(t, want, l, "an empty body renews for as long as before")
	assert.Equal(t, int64(300), a.renew(g.LeaseID, `{"ttlSeconds":300}`).TTLSeconds)
	l = a.renew(g.LeaseID, `{"ttlSeconds":1}`)
	assert.Equal(t, testStart.Add(350*time.Second), l.ExpiresAt, "never shorter")

	res := a.get("/v1/leases/" + g.LeaseID)
	require.Equal(t, http.StatusOK, res.status)
	assert.NotContains(t, res.body, "proxyURL")
	var got leaseStatusBody
	res.into(&got)
	assert.Equal(t, l, got)

	for _, body := range []string{`{"ttlSeconds":0}`, `{"ttlSeconds":3601}`} {
		a.post("/v1/leases/"+g.LeaseID+"/renew", body).problem(http.StatusBadRequest, codeInvalidTTL)
	}
	p := a.post("/v1/leases/"+g.LeaseID+"/renew", `{"ttl":1}`).problem(http.StatusBadRequest, codeInvalidRequest)
	assert.Contains(t, p.Detail, "known are ttlSeconds")
	a.get("/v1/leases/never-granted").problem(http.StatusNotFound, codeUnknownLease)
	a.post("/v1/leases/never-granted/renew", "").problem(http.StatusNotFound, codeUnknownLease)
}

// TestHoldersLearnWhatBecameOfTheirProxy: an old lease leads nowhere, and its
// place is not the new instance's.
func TestHoldersLearnWhatBecameOfTheirProxy(t *testing.T) {
	for reason, change := range map[lease.EndReason]func(a *api){
		lease.EndExpired:  func(a *api) { a.clock.Step(time.Minute) },
		lease.EndReplaced: func(a *api) { a.fleet.set(aProxy("a", withInstance("another"))) },
		lease.EndGone:     func(a *api) { a.fleet.set(aProxy("a", withInstance(""), inPhase("Replacing"))) },
		lease.EndDeleted:  func(a *api) { a.fleet.set() },
	} {
		a := newAPI(t)
		a.fleet.set(aProxy("a"))
		g := a.lease(`{"ttlSeconds":60}`)
		change(a)
		for _, res := range []answer{a.get("/v1/leases/" + g.LeaseID), a.post("/v1/leases/"+g.LeaseID+"/renew", ""), a.post("/v1/leases/"+g.LeaseID+"/renew", `{"ttlSeconds":9}`)} {
			p := res.problem(http.StatusGone, codeLeaseGone)
			assert.Equal(t, reason, p.Reason)
			assert.Contains(t, p.Detail, "acquire another lease")
		}
		assert.Equal(t, http.StatusNoContent, a.report(g.LeaseID, `{"result":"banned","target":"x.example"}`).status, "what it met counts still")
		assert.Equal(t, http.StatusNoContent, a.delete("/v1/leases/"+g.LeaseID).status)
		a.fleet.set(aProxy("a", withInstance("another")))
		a.lease(`{}`)
	}
}

func TestUnhealthyProxiesAreNotOfferedAndTheirLeasesRunOn(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a", withMaxLeases(2)))
	g := a.lease(`{}`)
	a.fleet.set(aProxy("a", withMaxLeases(2), inPhase("Unhealthy")))
	assert.Equal(t, 1, a.refused(`{}`).Unhealthy)
	a.renew(g.LeaseID, "")
}

// TestHoldersLearnWhatTheFleetKnows: the status is the current one, not that of the grant.
func TestHoldersLearnWhatTheFleetKnows(t *testing.T) {
	a := newAPI(t)
	for name, tt := range map[string]struct {
		change func(*fleet.Proxy)
		want   proxyStatus
	}{
		"unhealthy": {
			func(p *fleet.Proxy) { p.Phase, p.Healthy, p.Reason = "Unhealthy", false, "DialFailed" },
			proxyStatus{"Unhealthy", "DialFailed", false, "probes through it fail (DialFailed)"},
		},
		"deleting":     {func(p *fleet.Proxy) { p.Deleting = true }, proxyStatus{"Healthy", "Deleting", false, "the Proxy is being deleted"}},
		"draining":     {withMaxLeases(0), proxyStatus{"Healthy", "LeasingDisabled", false, "spec.maxLeases is 0"}},
		"being edited": {func(p *fleet.Proxy) { p.Generation = 2 }, proxyStatus{"Healthy", "StatusOutdated", false, "its status is of generation 1, and its spec of generation 2"}},
		"about to be replaced": {
			func(p *fleet.Proxy) { p.Phase, p.Reason = "Replacing", "SpecChanged" },
			proxyStatus{"Healthy", "SpecChanged", false, "its phase is Replacing (SpecChanged)"},
		},
		"no verdict any more": {
			func(p *fleet.Proxy) { p.Phase, p.Healthy, p.Reason = "Probing", false, "Inconclusive" },
			proxyStatus{"Unknown", "Inconclusive", false, "its phase is Probing (Inconclusive)"},
		},
	} {
		a.fleet.set(aProxy("a", withMaxLeases(99)))
		g := a.lease(`{}`)
		assert.True(t, a.renew(g.LeaseID, "").ProxyStatus.Usable)
		a.fleet.set(aProxy("a", withMaxLeases(99), tt.change))
		assert.Equal(t, tt.want, a.renew(g.LeaseID, "").ProxyStatus, name)
		res := a.get("/v1/leases/" + g.LeaseID)
		var got leaseStatusBody
		res.into(&got)
		assert.Equal(t, tt.want, got.ProxyStatus, name)
		a.fleet.set(aProxy("a", withMaxLeases(99)))
		assert.True(t, a.renew(g.LeaseID, "").ProxyStatus.Usable, "%s: and when it has recovered", name)
	}
}

func TestHoldersLearnThatVerdictsAreStale(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	g := a.lease(`{}`)
	a.fleet.renew(fleet.Renewal{Shard: v1alpha1.Shard{Index: 0, Count: 1}, At: testStart.Add(-25 * time.Hour)})
	status := a.renew(g.LeaseID, "").ProxyStatus
	assert.Equal(t, proxyStatus{"Unknown", "VerdictStale", false, status.Message}, status)
	assert.Contains(t, status.Message, "has not renewed its Lease")
}

// The instance changes between the store's answer and the snapshot.
func TestProxyStatusOfAnInstanceThatHasJustChanged(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a", withInstance("another")))
	p, status := a.server.proxyStatus(leaseOf(t))
	assert.Nil(t, p)
	assert.Equal(t, "InstanceChanged", status.Reason)
	assert.False(t, status.Usable)
}

// leaseOf is a lease on aProxy("a").
func leaseOf(t *testing.T) lease.Lease {
	t.Helper()
	p := aProxy("a")
	return lease.Lease{ID: "x", Instance: p.Instance, Proxy: p.Candidate.Proxy}
}

// After a restart, before the first snapshot, no lease is reported as ended.
func TestLeasesBeforeTheFirstSnapshot(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	g := a.lease(`{}`)
	again := newAPI(t, withStore(a.store), func(c *Config) { c.Clock = a.clock })
	again.fleet.fail(errNotSyncedYet())
	l := again.renew(g.LeaseID, "")
	assert.Equal(t, leasedProxy{Name: "a", Namespace: "crawl"}, l.Proxy)
	assert.Equal(t, "FleetUnknown", l.ProxyStatus.Reason)
	assert.True(t, l.ProxyStatus.Usable, "no view of the fleet is no evidence against a proxy")
}

func TestTheSameKeyGetsTheSameLease(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a", withMaxLeases(9)))
	acquire := func(body, key string) answer { return a.send(http.MethodPost, "/v1/leases", body, keyHeader, key) }
	first := acquire(`{"target":"shop.example","wait":30}`, "key-1")
	require.Equal(t, http.StatusCreated, first.status, first.body)
	a.clock.Step(time.Minute)
	again := acquire(`{"wait":1, "target":"https://shop.example/"}`, "key-1")
	assert.Equal(t, http.StatusCreated, again.status)
	assert.JSONEq(t, first.body, again.body)
	assert.Equal(t, first.header.Get("Location"), again.header.Get("Location"))
	p := acquire(`{"target":"other.example"}`, "key-1").problem(http.StatusUnprocessableEntity, codeKeyReused)
	assert.Contains(t, p.Detail, "Idempotency-Key")
	assert.NotEqual(t, first.body, acquire(`{"target":"shop.example"}`, "key-2").body)

	require.Equal(t, http.StatusNoContent, a.delete(first.header.Get("Location")).status)
	assert.NotEqual(t, first.body, acquire(`{"target":"shop.example"}`, "key-1").body, "a lease that was released is not granted again")

	for _, key := range []string{strings.Repeat("k", 256), "tab\tkey"} {
		acquire(`{}`, key).problem(http.StatusBadRequest, codeInvalidRequest)
	}
}

func TestSessionsStick(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a", withMaxLeases(2)), aProxy("b", withMaxLeases(2)), aProxy("c", withMaxLeases(2)))
	first := a.lease(`{"session":"cart-17"}`)
	assert.Equal(t, "cart-17", first.Session)
	a.lease(`{}`)
	assert.Equal(t, first.Proxy, a.lease(`{"session":"cart-17"}`).Proxy, "though others have fewer leases")
	p := a.refused(`{"session":"cart-17"}`)
	assert.Equal(t, 1, p.AtCapacity)
	p2 := a.post("/v1/leases", `{"session":"`+strings.Repeat("x", 129)+`"}`).problem(http.StatusBadRequest, codeInvalidRequest)
	assert.Contains(t, p2.Detail, "session has 129 bytes; at most 128 are allowed")
	a.post("/v1/leases", `{"session":"\n"}`).problem(http.StatusBadRequest, codeInvalidRequest)
}

func TestExclude(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"), aProxy("b"))
	assert.Equal(t, "b", a.lease(`{"exclude":["crawl/a"]}`).Proxy.Name)
	p := a.refused(`{"exclude":["crawl/a","crawl/b","elsewhere/b"]}`)
	assert.Equal(t, 2, p.Excluded)
	assert.Equal(t, "2 proxies match: 2 excluded by the request", p.Detail)
	assert.Zero(t, p.RetryAfterSeconds, "time does not help")

	many := strings.TrimSuffix(strings.Repeat(`"a/b",`, 65), ",")
	for body, want := range map[string]string{
		`{"exclude":"a"}`:            `field "exclude": want a list of strings, got string`,
		`{"exclude":[1]}`:            `field "exclude": want a list of strings, got number`,
		`{"exclude":[null]}`:         `field "exclude": want a list of strings, got null`,
		`{"exclude":["a"]}`:          `exclude: "a" names no proxy; want "namespace/name"`,
		`{"exclude":["a/b/c"]}`:      `names no proxy`,
		`{"exclude":["/b"]}`:         `names no proxy`,
		`{"exclude":[` + many + `]}`: `exclude has 65 entries; at most 64 are allowed`,
	} {
		p := a.post("/v1/leases", body).problem(http.StatusBadRequest, codeInvalidRequest)
		assert.Contains(t, p.Detail, want)
	}
}

// TestLeasesBelongToTheirToken: what is another's is as good as unknown.
func TestLeasesBelongToTheirToken(t *testing.T) {
	a := newAPI(t, withTokens(t))
	a.fleet.set(aProxy("a"))
	res := a.send(http.MethodPost, "/v1/leases", `{}`, bearing(adminToken)...)
	require.Equal(t, http.StatusCreated, res.status)
	theirs := res.header.Get("Location")
	a.send(http.MethodGet, theirs, "", bearing(leaseToken)...).problem(http.StatusNotFound, codeUnknownLease)
	a.send(http.MethodPost, theirs+"/renew", "", bearing(leaseToken)...).problem(http.StatusNotFound, codeUnknownLease)
	a.send(http.MethodPost, theirs+"/report", `{"result":"banned"}`, bearing(leaseToken)...).problem(http.StatusNotFound, codeUnknownLease)
	assert.Equal(t, http.StatusNoContent, a.send(http.MethodDelete, theirs, "", bearing(leaseToken)...).status)
	assert.Equal(t, http.StatusOK, a.send(http.MethodGet, theirs, "", bearing(adminToken)...).status, "it runs on")
	assert.Equal(t, http.StatusNoContent, a.send(http.MethodDelete, theirs, "", bearing(adminToken)...).status)

	res = a.send(http.MethodPost, "/v1/leases", `{"ttlSeconds":1}`, bearing(leaseToken)...)
	require.Equal(t, http.StatusCreated, res.status)
	own := res.header.Get("Location")
	assert.Equal(t, http.StatusOK, a.send(http.MethodGet, own, "", bearing(leaseToken)...).status)
	assert.Equal(t, http.StatusOK, a.send(http.MethodPost, own+"/renew", "", bearing(adminToken)...).status)
	a.clock.Step(time.Second)
	assert.Equal(t, http.StatusNoContent, a.send(http.MethodPost, own+"/report", `{"result":"ok"}`, bearing(leaseToken)...).status, "late, and its own")
	a.send(http.MethodGet, own, "", bearing(leaseToken)...).problem(http.StatusGone, codeLeaseGone)
	assert.Equal(t, http.StatusNoContent, a.send(http.MethodDelete, own, "", bearing(leaseToken)...).status)
}

// The credentials are unreadable at the retry, and the lease may be in use.
func TestReplayedGrantIsNotReleased(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	acquire := func() answer { return a.send(http.MethodPost, "/v1/leases", `{}`, keyHeader, "k") }
	res := acquire()
	require.Equal(t, http.StatusCreated, res.status)
	a.fleet.set(aProxy("a", withSecret("login")))
	acquire().problem(http.StatusServiceUnavailable, codeCredentialsUnavailable)
	assert.Equal(t, http.StatusOK, a.get(res.header.Get("Location")).status)
}

func TestFingerprintsTellRequestsApart(t *testing.T) {
	seen := map[string]string{}
	for _, req := range []lease.Request{
		{}, {Target: "a"}, {Session: "a"}, {TTL: 1}, {Exclude: []string{"a"}}, {Exclude: []string{"a", "b"}}, {Exclude: []string{"a,b"}}, {Schemes: []string{"a"}},
		{Selector: map[string]string{"a": "b"}}, {Selector: map[string]string{"a": "b", "c": ""}}, {Selector: map[string]string{"ab": ""}},
	} {
		f, text := fingerprint(req), fmt.Sprintf("%+v", req)
		assert.NotContains(t, seen, f, text)
		assert.LessOrEqual(t, len(f), 256)
		seen[f] = text
	}
}
