package api

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
)

func wantMetrics(t *testing.T, reg prometheus.Gatherer, want string, names ...string) {
	t.Helper()
	assert.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(want), names...))
}

func TestGaugesAreReadAtEveryScrape(t *testing.T) {
	a := newAPI(t)
	const help = `
# HELP proxy_operator_proxies Proxies, by phase.
# TYPE proxy_operator_proxies gauge
`
	wantMetrics(t, a.reg, help+`
proxy_operator_proxies{phase="Deleting"} 0
proxy_operator_proxies{phase="Failed"} 0
proxy_operator_proxies{phase="Probing"} 0
proxy_operator_proxies{phase="Provisioning"} 0
proxy_operator_proxies{phase="Ready"} 0
proxy_operator_proxies{phase="Replacing"} 0
proxy_operator_proxies{phase="Unhealthy"} 0
`, "proxy_operator_proxies")

	a.fleet.set(aProxy("a"), aProxy("b"), aProxy("c", inPhase(v1alpha1.PhaseUnhealthy)), aProxy("d", inPhase(v1alpha1.PhaseProvisioning)), aProxy("e", inPhase("")))
	g := a.lease(`{"ttlSeconds":60}`)
	a.lease(`{"ttlSeconds":120}`)
	wantMetrics(t, a.reg, help+`
proxy_operator_proxies{phase="Deleting"} 0
proxy_operator_proxies{phase="Failed"} 0
proxy_operator_proxies{phase="Probing"} 0
proxy_operator_proxies{phase="Provisioning"} 1
proxy_operator_proxies{phase="Ready"} 2
proxy_operator_proxies{phase="Replacing"} 0
proxy_operator_proxies{phase="Unhealthy"} 1
proxy_operator_proxies{phase="none"} 1
`, "proxy_operator_proxies")

	active := func() float64 { return single(t, a.reg, "proxy_operator_leases_active") }
	assert.EqualValues(t, 2, active())
	a.delete("/v1/leases/" + g.LeaseID)
	assert.EqualValues(t, 1, active())
	a.clock.Step(2 * time.Minute)
	assert.EqualValues(t, 0, active(), "expiry needs no sweep")
}

func TestStaleVerdictsRaiseAMetric(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"), aProxy("b", inPhase(v1alpha1.PhaseUnhealthy)), aProxy("c", inPhase(v1alpha1.PhaseProvisioning)))
	stale := func() float64 { return single(t, a.reg, "proxy_operator_proxies_verdict_stale") }
	assert.EqualValues(t, 0, stale())
	a.clock.Step(25 * time.Hour)
	assert.EqualValues(t, 2, stale(), "those that have a verdict")
	a.fleet.renew(
		fleet.Renewal{Shard: v1alpha1.Shard{Index: 0, Count: 1}, At: a.clock.Now()},
		fleet.Renewal{Shard: v1alpha1.Shard{Index: 0, Count: 2}, At: testStart},
	)
	assert.EqualValues(t, 0, stale())
	// A former generation of shards counts no longer once a later one is whole.
	wantMetrics(t, a.reg, `
# HELP proxy_operator_prober_shards Prober shards with a Lease object, by whether it was renewed within --verdict-max-age: alive or lapsed.
# TYPE proxy_operator_prober_shards gauge
proxy_operator_prober_shards{state="alive"} 1
proxy_operator_prober_shards{state="lapsed"} 0
`, "proxy_operator_prober_shards")
}

func TestStatusesThatAreBehindRaiseAMetric(t *testing.T) {
	a := newAPI(t)
	behind := func() float64 { return single(t, a.reg, "proxy_operator_proxies_status_behind") }
	a.fleet.set(aProxy("a"), aProxy("b", inPhase(v1alpha1.PhaseUnhealthy)))
	assert.EqualValues(t, 0, behind())
	a.fleet.set(aProxy("a"), aProxy("b", inPhase(v1alpha1.PhaseUnhealthy), func(p *fleet.Proxy) { p.VerdictAhead = true }))
	assert.EqualValues(t, 1, behind())
}

func TestNoNumberIsBetterThanAWrongOne(t *testing.T) {
	a := newAPI(t, withStore(brokenStore{err: errors.New("away")}))
	a.fleet.fail(errNotSyncedYet())
	for _, name := range []string{"proxy_operator_proxies", "proxy_operator_leases_active", "proxy_operator_proxies_verdict_stale", "proxy_operator_proxies_status_behind"} {
		n, err := testutil.GatherAndCount(a.reg, name)
		require.NoError(t, err)
		assert.Zero(t, n, name)
	}
}

func TestLeaseRequestsAreCountedByOutcome(t *testing.T) {
	a := newAPI(t)
	wantCounts := func(granted, noMatch, invalid, unavailable, disconnected string) {
		t.Helper()
		wantMetrics(t, a.reg, `
# HELP proxy_operator_lease_requests_total Requests for a lease, by outcome: granted, no_match, invalid (4xx), unavailable (5xx) or disconnected (the client left first).
# TYPE proxy_operator_lease_requests_total counter
proxy_operator_lease_requests_total{outcome="disconnected"} `+disconnected+`
proxy_operator_lease_requests_total{outcome="granted"} `+granted+`
proxy_operator_lease_requests_total{outcome="invalid"} `+invalid+`
proxy_operator_lease_requests_total{outcome="no_match"} `+noMatch+`
proxy_operator_lease_requests_total{outcome="unavailable"} `+unavailable+`
`, "proxy_operator_lease_requests_total")
	}
	wantCounts("0", "0", "0", "0", "0")
	a.fleet.set(aProxy("a"))
	g := a.lease(`{}`)
	a.refused(`{}`)
	a.refused(`{}`)
	a.post("/v1/leases", `{"ttlSeconds":0}`)
	a.post("/v1/leases", ``)
	a.post("/v1/leases", strings.Repeat(" ", maxBody+1))
	a.fleet.fail(errNotSyncedYet())
	a.post("/v1/leases", `{}`)
	wantCounts("1", "2", "3", "1", "0")

	gone, leave := context.WithCancel(t.Context())
	leave()
	a.fleet.fail(nil)
	r := httptest.NewRequest(http.MethodPost, "/v1/leases", strings.NewReader(`{}`)).WithContext(gone)
	_, err := a.server.acquire(r)
	require.ErrorIs(t, err, errDisconnected)
	wantCounts("1", "2", "3", "1", "1") // no failure of ours: an alert counts those

	a.report(g.LeaseID, `{"result":"banned"}`)
	a.report("unknown", `{"result":"banned"}`)
	wantMetrics(t, a.reg, `
# HELP proxy_operator_lease_reports_total Accepted reports on leases, by result.
# TYPE proxy_operator_lease_reports_total counter
proxy_operator_lease_reports_total{result="banned"} 1
proxy_operator_lease_reports_total{result="captcha"} 0
proxy_operator_lease_reports_total{result="connect_error"} 0
proxy_operator_lease_reports_total{result="ok"} 0
proxy_operator_lease_reports_total{result="proxy_timeout"} 0
proxy_operator_lease_reports_total{result="rate_limited"} 0
proxy_operator_lease_reports_total{result="target_timeout"} 0
proxy_operator_lease_reports_total{result="target_unreachable"} 0
`, "proxy_operator_lease_reports_total")
}

// TestRequestsAreCountedByRoute: clients cannot make series by inventing paths
// and methods.
func TestRequestsAreCountedByRoute(t *testing.T) {
	a := newAPI(t)
	for _, id := range []string{"a", "b", "c"} {
		a.delete("/v1/leases/" + id)
		a.get("/nowhere/" + id)
		a.send("BREW", "/v1/leases/"+id, "")
	}
	a.send(http.MethodGet, "/v1/proxies", "", "Authorization", "")
	wantMetrics(t, a.reg, `
# HELP proxy_operator_http_requests_total HTTP requests, by route pattern, method and status code.
# TYPE proxy_operator_http_requests_total counter
proxy_operator_http_requests_total{code="204",method="DELETE",route="/v1/leases/{id}"} 3
proxy_operator_http_requests_total{code="404",method="GET",route="unmatched"} 3
proxy_operator_http_requests_total{code="405",method="other",route="unmatched"} 3
proxy_operator_http_requests_total{code="401",method="GET",route="unmatched"} 1
`, "proxy_operator_http_requests_total")
}

func single(t *testing.T, reg prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			require.Len(t, f.GetMetric(), 1)
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
