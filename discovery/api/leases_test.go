package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

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
	assert.Contains(t, p.Detail, "1 cooling for leased.example until")
	assert.Contains(t, a.refused(`{}`).Detail, "1 cooling for all targets until")
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
		assert.Contains(t, p.Detail, `want one of ["ok" "rate_limited" "banned" "captcha" "target_timeout" "proxy_timeout" "connect_error"]`)
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
