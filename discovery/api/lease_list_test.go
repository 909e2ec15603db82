package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// operated is a server with tokens, and what an operator asks of it.
type operated struct{ *api }

func newOperated(t *testing.T) operated { return operated{newAPI(t, withTokens(t))} }

func (o operated) as(token, method, path, body string, header ...string) answer {
	o.Helper()
	return o.send(method, path, body, append(bearing(token), header...)...)
}

func (o operated) grant(token, body string) (g grantBody) {
	o.Helper()
	res := o.as(token, http.MethodPost, "/v1/leases", body)
	require.Equal(o, http.StatusCreated, res.status, res.body)
	res.into(&g)
	return g
}

func (o operated) leases(query string) (l leaseListBody) {
	o.Helper()
	res := o.as(adminToken, http.MethodGet, "/v1/leases"+query, "")
	require.Equal(o, http.StatusOK, res.status, res.body)
	res.into(&l)
	require.Len(o, l.Leases, l.Count)
	require.NotNil(o, l.Leases)
	return l
}

func TestOperatorsListLeases(t *testing.T) {
	a := newOperated(t)
	assert.Empty(t, a.leases("").Leases)
	a.fleet.set(aProxy("a", withMaxLeases(9)), aProxy("b", withMaxLeases(9)))
	res := a.as(leaseToken, http.MethodPost, "/v1/leases", `{"session":"cart","target":"https://Shop.example/x","ttlSeconds":60}`, keyHeader, "CANARY-key")
	var first grantBody
	res.into(&first)
	second := a.grant(adminToken, `{"ttlSeconds":90}`)

	got := a.leases("")
	require.Equal(t, 2, got.Count)
	assert.Equal(t, listedLease{leaseBody: first.leaseBody, InstanceID: "instance-a", Holder: "crawler", GrantedAt: testStart}, got.Leases[0])
	assert.Equal(t, listedLease{leaseBody: second.leaseBody, InstanceID: "instance-b", Holder: "operator", GrantedAt: testStart}, got.Leases[1])
	assert.NotContains(t, a.as(adminToken, http.MethodGet, "/v1/leases", "").body, "CANARY")

	for query, want := range map[string][]string{
		"?proxy=crawl/a": {first.LeaseID}, "?proxy=crawl/c": nil, "?holder=operator": {second.LeaseID}, "?session=cart": {first.LeaseID},
		"?target=SHOP.example:443": {first.LeaseID}, "?target=other.example": nil, "?session=cart&holder=operator": nil, "?limit=2": {first.LeaseID, second.LeaseID},
	} {
		var ids []string
		for _, l := range a.leases(query).Leases {
			ids = append(ids, l.LeaseID)
		}
		assert.Equal(t, want, ids, query)
	}

	a.fleet.set(aProxy("a", withMaxLeases(9), func(p *fleet.Proxy) { p.ID = "instance-new" }))
	got = a.leases("")
	assert.Equal(t, lease.EndReplaced, got.Leases[0].Ended)
	assert.Empty(t, got.Leases[0].Proxy.Host, "another instance's is not its own")
	assert.Equal(t, lease.EndDeleted, got.Leases[1].Ended)
	a.clock.Step(time.Minute)
	assert.Equal(t, 1, a.leases("").Count, "what has expired does not run")
}

// TestPagesOfLeases: while leases come and go, those that stay are seen once. There
// are more of them than the store looks at in one go.
func TestPagesOfLeases(t *testing.T) {
	a := newOperated(t)
	a.fleet.set(aProxy("a", withMaxLeases(100_000)))
	_, err := a.server.offers.sync()
	require.NoError(t, err)
	var stay []string
	for i := range 4_500 {
		l, err := a.store.Acquire(t.Context(), lease.Request{TTL: time.Hour, Holder: "crawler", Target: fmt.Sprint("t", i%4400)})
		require.NoError(t, err)
		if i%4400 == 7 {
			stay = append(stay, l.ID)
		}
	}
	got := a.leases("?target=t7&limit=1")
	require.Equal(t, 1, got.Count)
	require.NotEmpty(t, got.NextCursor)
	a.as(adminToken, http.MethodDelete, "/v1/leases/"+got.Leases[0].LeaseID, "")
	rest := a.leases("?target=t7&cursor=" + got.NextCursor)
	require.Equal(t, 1, rest.Count)
	assert.Equal(t, stay, []string{got.Leases[0].LeaseID, rest.Leases[0].LeaseID})
	assert.Empty(t, rest.NextCursor)

	seen, pages := map[string]int{}, 0
	for query := "?limit=1000"; query != ""; pages++ {
		got := a.leases(query)
		for _, l := range got.Leases {
			seen[l.LeaseID]++
		}
		a.grant(leaseToken, `{}`)
		query = ""
		if got.NextCursor != "" {
			query = "?limit=1000&cursor=" + got.NextCursor
		}
	}
	assert.GreaterOrEqual(t, len(seen), 4_499)
	for id, n := range seen {
		assert.Equal(t, 1, n, id)
	}
	assert.Equal(t, 5, pages, "pages are full, and those that were granted meanwhile come last")
	a.as(adminToken, http.MethodGet, "/v1/leases?limit=9&cursor="+got.NextCursor, "").problem(http.StatusBadRequest, codeInvalidQuery)
}

func TestLeaseQueriesThatAreRefused(t *testing.T) {
	a := newOperated(t)
	for query, want := range map[string]string{
		"holders=x":           `unknown query parameters: ["holders"]; known are cursor, holder, limit, proxy, session, target`,
		"holder=":             "holder is empty",
		"holder=a&holder=b":   `parameter "holder" is given 2 times`,
		"proxy=a":             `want "namespace/name"`,
		"target=%3F":          "target names no host",
		"limit=0":             "want a whole number, 1 to 1000",
		"limit=1001":          "want a whole number, 1 to 1000",
		"cursor=nonsense":     "it is not from a list",
		"cursor=MSBhIDA":      "it belongs to a list with other filters",
		"cursor=MSAwMDAwIDE3": "it belongs to a list with other filters",
		"%zz":                 "the query does not parse",
	} {
		p := a.as(adminToken, http.MethodGet, "/v1/leases?"+query, "").problem(http.StatusBadRequest, codeInvalidQuery)
		assert.Contains(t, p.Detail, want, query)
	}
}

// TestOperatorsEndLeases: of anybody, and never that of who came after.
func TestOperatorsEndLeases(t *testing.T) {
	a := newOperated(t)
	a.fleet.set(aProxy("a"))
	old := a.grant(leaseToken, `{"ttlSeconds":60}`)
	assert.Equal(t, http.StatusNoContent, a.as(adminToken, http.MethodDelete, "/v1/leases/"+old.LeaseID, "").status)
	a.as(leaseToken, http.MethodPost, "/v1/leases/"+old.LeaseID+"/renew", "").problem(http.StatusNotFound, codeUnknownLease)
	next := a.grant(leaseToken, `{"ttlSeconds":60}`)
	assert.Greater(t, next.FencingToken, old.FencingToken)
	assert.Equal(t, http.StatusNoContent, a.as(adminToken, http.MethodDelete, "/v1/leases/"+old.LeaseID, "").status)
	a.clock.Step(time.Minute)
	last := a.grant(leaseToken, `{}`)
	assert.Equal(t, http.StatusNoContent, a.as(adminToken, http.MethodDelete, "/v1/leases/"+next.LeaseID, "").status)
	assert.Equal(t, last.LeaseID, a.leases("").Leases[0].LeaseID)
	assert.Equal(t, http.StatusOK, a.as(leaseToken, http.MethodGet, "/v1/leases/"+last.LeaseID, "").status)
	assert.Contains(t, a.logs.String(), fmt.Sprintf(`"msg":"lease ended by an operator","lease":%q,"namespace":"crawl","proxy":"a","holder":"crawler","token":"operator"`, old.LeaseID))
}

func TestOperatorsEndCooldowns(t *testing.T) {
	a := newOperated(t)
	a.fleet.set(aProxy("a", withMaxLeases(9)))
	g := a.grant(leaseToken, `{"ttlSeconds":3600}`)
	const path = "/v1/proxies/crawl/a/cooldowns"
	list := func() (l cooldownListBody) {
		res := a.as(adminToken, http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, res.status, res.body)
		res.into(&l)
		require.Len(t, l.Cooldowns, l.Count)
		return l
	}
	end := func(query string) int {
		res := a.as(adminToken, http.MethodDelete, path+query, "")
		require.Equal(t, http.StatusOK, res.status, res.body)
		var ended endedBody
		res.into(&ended)
		return ended.Ended
	}
	refused := func(body string) int {
		return a.as(leaseToken, http.MethodPost, "/v1/leases", body).status
	}
	assert.Zero(t, list().Count)
	for _, target := range []string{"b.example", "a.example"} {
		require.Equal(t, http.StatusNoContent, a.as(leaseToken, http.MethodPost, "/v1/leases/"+g.LeaseID+"/report", `{"result":"banned","target":"`+target+`"}`).status)
	}
	require.Equal(t, http.StatusNoContent, a.as(leaseToken, http.MethodPost, "/v1/leases/"+g.LeaseID+"/report", `{"result":"connect_error"}`).status)
	until := testStart.Add(testWindow)
	assert.Equal(t, []listedCooldown{{"", testStart.Add(testWindow / 20)}, {"a.example", until}, {"b.example", until}}, list().Cooldowns)

	assert.Equal(t, 1, end("?target=https://A.example/"))
	assert.Zero(t, end("?target=a.example"))
	assert.Equal(t, http.StatusConflict, refused(`{"target":"a.example"}`), "all targets still rest")
	assert.Equal(t, 2, end(""))
	assert.Zero(t, list().Count)
	assert.Equal(t, http.StatusCreated, refused(`{"target":"b.example"}`))
	assert.Contains(t, a.logs.String(), `"msg":"cooldowns ended by an operator","namespace":"crawl","proxy":"a","target":"","ended":2,"token":"operator"`)

	for _, query := range []string{"?target=", "?target=%3F", "?nonsense=1", "?target=a&target=b"} {
		a.as(adminToken, http.MethodDelete, path+query, "").problem(http.StatusBadRequest, codeInvalidQuery)
	}
	a.as(adminToken, http.MethodGet, path+"?target=a.example", "").problem(http.StatusBadRequest, codeInvalidQuery)
	p := a.as(adminToken, http.MethodDelete, "/v1/proxies/crawl/none/cooldowns", "").problem(http.StatusNotFound, codeUnknownProxy)
	assert.Contains(t, p.Detail, "there is no Proxy crawl/none")
	a.fleet.fail(errNotSyncedYet())
	a.as(adminToken, http.MethodDelete, path, "").problem(http.StatusServiceUnavailable, codeNotReady)
}

// TestAnEndedCooldownServesWhoWaits at once.
func TestAnEndedCooldownServesWhoWaits(t *testing.T) {
	a := newOperated(t)
	a.fleet.set(aProxy("a", withMaxLeases(9)))
	g := a.grant(leaseToken, `{"ttlSeconds":3600}`)
	a.as(leaseToken, http.MethodPost, "/v1/leases/"+g.LeaseID+"/report", `{"result":"banned"}`)
	done := make(chan int)
	go func() { done <- a.as(leaseToken, http.MethodPost, "/v1/leases", `{"wait":30}`).status }()
	require.Eventually(t, func() bool { return len(a.server.waitSlots) == 1 }, 5*time.Second, time.Millisecond)
	a.as(adminToken, http.MethodDelete, "/v1/proxies/crawl/a/cooldowns", "")
	assert.Equal(t, http.StatusCreated, <-done)
}

// A token with the scope lease neither lists leases nor ends cooldowns.
func TestAdminRoutesNeedTheScopeAdmin(t *testing.T) {
	a := newOperated(t)
	a.fleet.set(aProxy("a"))
	var theirs []string
	for _, rt := range a.server.table {
		if rt.scope != "admin" {
			continue
		}
		theirs = append(theirs, rt.method+" "+rt.pattern)
		path := strings.NewReplacer("{namespace}", "crawl", "{name}", "a").Replace(rt.pattern)
		for _, token := range []string{readToken, leaseToken} {
			a.as(token, rt.method, path, "").problem(http.StatusForbidden, codeForbidden)
		}
		assert.Equal(t, http.StatusOK, a.as(adminToken, rt.method, path, "").status)
	}
	assert.ElementsMatch(t, []string{"GET /v1/leases", "GET " + cooldownsPath, "DELETE " + cooldownsPath}, theirs)
}
