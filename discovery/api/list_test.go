package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// listBody is the answer to GET /v1/proxies.
type listBody struct {
	Proxies []listedProxy `json:"proxies"`
	Count   int           `json:"count"`
	// NextCursor is there when the list goes on.
	NextCursor string `json:"nextCursor,omitempty"`
}

// listedProxy is one entry, as rendered writes it.
type listedProxy struct {
	listedFixed
	listedLive
}

func TestListOfNothing(t *testing.T) {
	a := newAPI(t)
	res := a.get("/v1/proxies")
	require.Equal(t, http.StatusOK, res.status)
	assert.JSONEq(t, `{"proxies":[],"count":0}`, res.body)
	assert.Equal(t, "application/json", res.header.Get("Content-Type"))
}

func TestListShowsEverythingThatCrawlersSelectOn(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a", withMaxLeases(3)))
	a.lease(`{}`)
	res := a.get("/v1/proxies")
	require.Equal(t, http.StatusOK, res.status)
	assert.JSONEq(t, `{"count":1,"proxies":[{
		"name":"a","namespace":"crawl","host":"10.0.0.7","port":3128,"attributes":{"geo":"eu"},
		"phase":"Ready","healthy":true,"reason":"ProbeSucceeded","latencyMillis":20,
		"activeLeases":1,"maxLeases":3,"leasable":true}]}`, res.body)
}

func TestListIsInOrderAndAlwaysTheSame(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("b"), aProxy("c"), aProxy("a"))
	first := a.get("/v1/proxies").body
	var names []string
	for _, p := range a.list("").Proxies {
		names = append(names, p.Name)
	}
	assert.Equal(t, []string{"a", "b", "c"}, names)
	for range 5 {
		require.Equal(t, first, a.get("/v1/proxies").body)
	}
}

func TestListFilters(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(
		aProxy("eu", withAttr("geo", "eu")), aProxy("us", withAttr("geo", "us")),
		aProxy("sick", withAttr("geo", "eu"), inPhase(v1alpha1.PhaseUnhealthy)),
		aProxy("odd", withAttr("a b&c=d", "x y")),
		aProxy("empty", withAttr("note", "")),
	)
	tests := map[string][]string{
		"":                            {"empty", "eu", "odd", "sick", "us"},
		"?attr.geo=eu":                {"eu", "sick"},
		"?attr.geo=eu&healthy=true":   {"eu"},
		"?healthy=false":              {"sick"},
		"?attr.geo=mars":              nil,
		"?attr.a+b%26c%3Dd=x%20y":     {"odd"},
		"?attr.note=":                 {"empty"},
		"?attr.geo=eu&attr.tier=gold": nil,
		"?healthy=true&attr.geo=us":   {"us"},
		"?attr.healthy=true":          nil,
		"?attr.geo=EU":                nil,
	}
	for query, want := range tests {
		var got []string
		for _, p := range a.list(query).Proxies {
			got = append(got, p.Name)
		}
		assert.Equal(t, want, got, query)
	}
}

func TestListRefusesQueriesThatItDoesNotKnow(t *testing.T) {
	a := newAPI(t)
	long := strings.Repeat("x", 129)
	tests := map[string]string{
		"?geo=eu&healty=true":        `unknown query parameters: ["geo" "healty"]; known are cursor, healthy, leasable, limit, namespace, phase, wait and attr.NAME`,
		"?healthy=yes":               "healthy=yes: want true or false",
		"?healthy":                   "healthy=: want true or false",
		"?healthy=true&healthy=true": `parameter "healthy" is given 2 times`,
		"?attr.geo=eu&attr.geo=us":   `parameter "attr.geo" is given 2 times`,
		"?attr.=eu":                  "an attribute without a name",
		"?attr." + long + "=x":       "names have at most 63 characters",
		"?attr.geo=" + long:          "values have at most 128 characters",
		"?a=%zz":                     "the query does not parse",
		"?a;b":                       "the query does not parse",
		"?=x":                        `unknown query parameters: [""]`,
		"?" + strings.Repeat("attr.a=b&", 3) + manyAttributes(33): "given 3 times",
		"?" + manyAttributes(33):                                  "the selector has 33 attributes; at most 32 are allowed",
	}
	for query, want := range tests {
		p := a.get("/v1/proxies"+query).problem(http.StatusBadRequest, codeInvalidQuery)
		assert.Contains(t, p.Detail, want, query)
	}
}

func manyAttributes(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("attr.k" + strings.Repeat("x", i) + "=v&")
	}
	return b.String()
}

func TestListSaysWhyAProxyIsNotLeasable(t *testing.T) {
	a := newAPI(t)
	banned := aProxy("banned", withMaxLeases(2))
	a.fleet.set(banned)
	a.report(a.lease(`{}`).LeaseID, `{"result":"banned"}`)
	full := aProxy("full")
	a.fleet.set(full)
	a.lease(`{}`)
	a.fleet.set(
		banned, full, aProxy("fine"),
		aProxy("sick", inPhase(v1alpha1.PhaseUnhealthy), func(p *fleet.Proxy) { p.Reason = "DialFailed" }),
		aProxy("new", inPhase(v1alpha1.PhaseProvisioning), func(p *fleet.Proxy) { p.LatencyMillis, p.Host, p.Port = lease.UnknownLatency, "", 0 }),
		aProxy("edited", func(p *fleet.Proxy) { p.Generation = 2 }),
		aProxy("going", func(p *fleet.Proxy) { p.Deleting = true }),
		aProxy("off", withMaxLeases(0)),
	)
	got := map[string]listedProxy{}
	for _, p := range a.list("").Proxies {
		got[p.Name] = p
		assert.Equal(t, p.Leasable, p.NotLeasableReason == "")
		assert.Equal(t, p.Leasable, p.NotLeasableMessage == "")
	}
	assert.True(t, got["fine"].Leasable)
	want := map[string][2]string{
		"banned": {"InCooldown", "it is in cooldown for all targets until 2026-11-01T12:10:00Z"},
		"full":   {"AtCapacity", "1 leases are active, and maxLeases is 1"},
		"sick":   {"Unhealthy", "probes through it fail (DialFailed)"},
		"new":    {"NotReady", "its phase is Provisioning (ProbeSucceeded)"},
		"edited": {"StatusOutdated", "its status is of generation 1, and its spec of generation 2"},
		"going":  {"Deleting", "the Proxy is being deleted"},
		"off":    {"LeasingDisabled", "spec.maxLeases is 0"},
	}
	for name, w := range want {
		assert.EqualValues(t, w[0], got[name].NotLeasableReason, name)
		assert.Contains(t, got[name].NotLeasableMessage, w[1])
	}
	assert.Nil(t, got["new"].LatencyMillis, "no measurement is not 0 ms")

	a.clock.Step(25 * time.Hour)
	assert.EqualValues(t, "VerdictStale", a.list("").Proxies[2].NotLeasableReason)
}
