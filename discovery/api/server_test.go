package api

import (
	"bufio"
	"cmp"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/access"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/memory"
)

// leaseWord stands for the id of a lease that runs, in requests that fuzzing makes
// up: it would never guess one.
const leaseWord = "LEASE"

// requestSeeds are whole requests, as they come over the wire.
func requestSeeds() []string {
	const as = "Authorization: Bearer " + testToken + "\r\n"
	with := func(line, headers, body string) string {
		return line + " HTTP/1.1\r\nHost: d\r\n" + headers + "Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	}
	return []string{
		with("POST /v1/leases", as+"Idempotency-Key: k1\r\n", `{"selector":{"geo":"eu"},"ttlSeconds":300,"target":"example.com","session":"s","wait":5}`),
		with("POST /v1/leases", as+"X-Request-Id: r-1\r\n", `{"exclude":["crawl/a","crawl/b"],"wait":30}`),
		with("POST /v1/leases/"+leaseWord+"/renew", as, `{"ttlSeconds":60}`),
		with("POST /v1/leases/"+leaseWord+"/report", as, `{"result":"banned","target":"https://example.com/x"}`),
		with("DELETE /v1/leases/"+leaseWord, as, ""),
		with("GET /v1/leases/"+leaseWord, as, ""),
		with("GET /v1/proxies?attr.geo=eu&healthy=true&limit=1", as+"If-None-Match: W/\"x\", *\r\n", ""),
		with("GET /v1/proxies?wait=3&cursor=eA&phase=Ready", as+"If-None-Match: \"y\"\r\n", ""),
		with("HEAD /openapi.json", "", ""),
		with("OPTIONS *", as, ""),
		with("GET http://x/v1//leases/%2e%2e", "Authorization: Basic x\r\nX-Request-Id: \x7f\r\n", ""),
		with("GEt /v1/proxies", as, ""),
		with("BREW /v1/leases/%ff/renew", as, `{}`),
	}
}

// FuzzRequests sends anything at all to the whole API: each answer is one that the
// description of the API has, none is a failure of ours, and none holds a secret.
func FuzzRequests(f *testing.F) {
	for _, seed := range requestSeeds() {
		f.Add([]byte(seed))
	}
	clk := clocktesting.NewFakeClock(testStart)
	store := memory.New(clk, testWindow)
	s := fuzzedServer(f, store, clk)
	h := s.Handler()
	described := theContract(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		clk.Step(2 * time.Hour) // nothing of the last request runs any more
		if _, err := s.offers.sync(); err != nil {
			t.Fatal(err)
		}
		running, err := store.Acquire(t.Context(), lease.Request{TTL: time.Hour, Holder: "default"})
		require.NoError(t, err)
		text := strings.ReplaceAll(string(raw), leaseWord, running.ID)
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return // package http answers these
		}
		r.RemoteAddr = "192.0.2.1:1234"
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		require.NotEqual(t, http.StatusInternalServerError, rec.Code, rec.Body)
		require.NotContains(t, rec.Body.String(), testToken)
		require.NotEmpty(t, rec.Header().Get(requestIDHeader))
		if rec.Body.Len() > 0 {
			require.True(t, json.Valid(rec.Body.Bytes()), rec.Body)
		}
		described.check(t, r.Method, cmp.Or(r.URL.RawPath, r.URL.Path), answer{t: t, status: rec.Code, header: rec.Header(), body: rec.Body.String()})
		require.NoError(t, store.Release(t.Context(), running.ID))
	})
}

// fuzzedServer knows two proxies, and answers at once those who are ready to
// wait.
func fuzzedServer(tb testing.TB, store lease.Store, clk *clocktesting.FakeClock) *Server {
	snap := fleet.Snapshot{Freshness: fleet.NewFreshness([]fleet.Renewal{{Shard: v1alpha1.Shard{Count: 1}, At: testStart}}, testStart, time.Minute)}
	snap.Proxies = []*fleet.Proxy{aProxy("a", withMaxLeases(3)), aProxy("b", withAttr("geo", "us"))}
	tokens, err := access.Single(testToken, 0)
	require.NoError(tb, err)
	s, err := New(Config{
		Fleet: stillFleet{snap}, Store: store, Tokens: tokens, MaxLeaseTTL: time.Hour, Credentials: &fakeSecrets{},
		Clock: clk, Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(tb, err)
	s.Drain()
	return s
}
