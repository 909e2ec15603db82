package api

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/memory"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
)

// TestPagesAreTheListInParts: whatever the fleet and the limit, and although
// proxies come and go between pages, all that stay are seen once.
func TestPagesAreTheListInParts(t *testing.T) {
	a := newAPI(t)
	for range 20 {
		var stay, all []*fleet.Proxy
		for i := range rand.IntN(40) {
			p := aProxy(fmt.Sprintf("p-%02d", i), withAttr("geo", []string{"eu", "us"}[rand.IntN(2)]))
			all = append(all, p)
			if rand.IntN(4) > 0 {
				stay = append(stay, p)
			}
		}
		a.fleet.set(all...)
		limit := 1 + rand.IntN(10)
		seen := map[string]int{}
		next := ""
		for first := true; first || next != ""; first = false {
			query := fmt.Sprintf("?attr.geo=eu&limit=%d", limit)
			if next != "" {
				query += "&cursor=" + next
			}
			page := a.list(query)
			require.LessOrEqual(t, page.Count, limit)
			for _, p := range page.Proxies {
				seen[p.Name]++
			}
			next = page.NextCursor
			a.fleet.set(stay...)
		}
		for _, p := range stay {
			if p.Attributes["geo"] == "eu" {
				assert.Equal(t, 1, seen[p.Name], p.Name)
			}
		}
		for name, n := range seen {
			assert.Equal(t, 1, n, name)
		}
	}
}

func TestCursorsAreCheckedAndBoundToTheirFilters(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"), aProxy("b"), aProxy("c"))
	next := a.list("?limit=1&healthy=true").NextCursor
	assert.Equal(t, "b", a.list("?limit=2&healthy=true&cursor=" + next).Proxies[0].Name, "the limit may differ")
	p := a.get("/v1/proxies?limit=1&cursor="+next).problem(http.StatusBadRequest, codeInvalidQuery)
	assert.Contains(t, p.Detail, "it belongs to a list with other filters")
	for _, bad := range []string{"", "x", "%20", strings.Repeat("x", 2000), base64.RawURLEncoding.EncodeToString([]byte("2 x a/b")), base64.RawURLEncoding.EncodeToString([]byte("1 x"))} {
		p := a.get("/v1/proxies?cursor="+bad).problem(http.StatusBadRequest, codeInvalidQuery)
		assert.Contains(t, p.Detail, "it is not from a list")
	}
}

func TestListFiltersByState(t *testing.T) {
	a := newAPI(t)
	full := aProxy("full")
	a.fleet.set(full)
	a.lease(`{}`)
	other := aProxy("other")
	other.Namespace, other.Candidate.Proxy = "elsewhere", "elsewhere/other"
	a.fleet.set(full, aProxy("sick", inPhase(v1alpha1.PhaseUnhealthy)), aProxy("free"), other)
	for query, want := range map[string]string{
		"?leasable=true": "free other", "?leasable=false": "full sick", "?phase=Unhealthy": "sick", "?phase=Ready&leasable=true&namespace=crawl": "free",
		"?namespace=elsewhere": "other", "?namespace=nowhere": "", "?leasable=true&limit=1": "free",
	} {
		var names []string
		for _, p := range a.list(query).Proxies {
			names = append(names, p.Name)
		}
		assert.Equal(t, want, strings.Join(names, " "), query)
	}
	for query, want := range map[string]string{
		"leasable=1": "leasable=1: want true or false", "phase=ready": `phase=ready: want one of ["Provisioning"`, "namespace=": "namespace: want the name",
		"limit=0": "limit=0: want a whole number, 1 to 1000", "limit=1001": "1 to 1000", "limit=x": "whole number", "wait=31": "wait=31: want a whole number, 0 to 30",
		"wait=5": "send its ETag as If-None-Match",
	} {
		assert.Contains(t, a.get("/v1/proxies?"+query).problem(http.StatusBadRequest, codeInvalidQuery).Detail, want)
	}
}

func TestListTags(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a", withMaxLeases(2)), aProxy("b", withMaxLeases(2)))
	res := a.get("/v1/proxies")
	tag := res.header.Get("Etag")
	assert.Regexp(t, `^W/"[0-9a-f]+"$`, tag)
	assert.Equal(t, "private, no-cache", res.header.Get("Cache-Control"))
	for _, header := range []string{tag, `"x", ` + tag, strings.TrimPrefix(tag, "W/"), "*"} {
		res := a.send(http.MethodGet, "/v1/proxies", "", "If-None-Match", header)
		assert.Equal(t, http.StatusNotModified, res.status, header)
		assert.Empty(t, res.body)
		assert.Equal(t, tag, res.header.Get("Etag"))
	}
	same := func() bool {
		t.Helper()
		res := a.send(http.MethodGet, "/v1/proxies", "", "If-None-Match", tag)
		tag = res.header.Get("Etag")
		return res.status == http.StatusNotModified
	}
	a.lease(`{"exclude":["crawl/b"]}`)
	assert.True(t, same(), "how many leases are out does not count")
	a.lease(`{"exclude":["crawl/b"]}`)
	assert.False(t, same(), "that none can be had does")
	a.fleet.set(aProxy("a", withMaxLeases(2)), aProxy("b", withMaxLeases(2), withInstance("another")))
	assert.False(t, same(), "an instance that looks the same")
	a.fleet.set(aProxy("a", withMaxLeases(2)), aProxy("b", withMaxLeases(2), withInstance("another")))
	assert.True(t, same(), "the same, seen again: tags outlive restarts")
	a.fleet.set(aProxy("a", withMaxLeases(2)))
	assert.False(t, same())
	a.clock.Step(25 * time.Hour)
	assert.False(t, same(), "a verdict that went stale")
	a.clock.Step(time.Minute)
	assert.True(t, same(), "but not that it has for longer")
	assert.NotEqual(t, tag, a.get("/v1/proxies?limit=1").header.Get("Etag")+"x")
}

// waitForList asks for a change of the whole list.
func (a *api) waitForList(tag string) <-chan answer {
	a.Helper()
	return a.later(func() answer { return a.send(http.MethodGet, "/v1/proxies?wait=30", "", "If-None-Match", tag) })
}

func TestListWaitsForAChange(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	tag := a.get("/v1/proxies").header.Get("Etag")
	done := a.waitForList(tag)
	a.fleet.set(aProxy("a"), aProxy("b"))
	res := answerWhile(a, done, listPause)
	assert.Equal(t, http.StatusOK, res.status)
	assert.Contains(t, res.body, `"name":"b"`)

	done = a.waitForList(res.header.Get("Etag"))
	res = answerWhile(a, done, time.Second)
	assert.Equal(t, http.StatusNotModified, res.status, "nothing came")

	done = a.waitForList(res.header.Get("Etag"))
	a.server.Drain()
	assert.Equal(t, http.StatusNotModified, (<-done).status)
}

// answerWhile lets time go by until there is an answer.
func answerWhile(a *api, done <-chan answer, step time.Duration) answer {
	a.Helper()
	for range 10_000 {
		select {
		case res := <-done:
			return res
		case <-time.After(time.Millisecond):
			a.clock.Step(step)
		}
	}
	a.Fatal("no answer")
	return answer{}
}

// TestListsAreWhatPackageJSONWouldWrite compares the list that is put together
// from parts with one that is encoded as a whole.
func TestListsAreWhatPackageJSONWouldWrite(t *testing.T) {
	a := newAPI(t)
	odd := aProxy("odd", withAttr("quote\"&<>", "\u2028ü\\"), inPhase(v1alpha1.PhaseFailed))
	odd.Reason = "with \"quotes\" & <signs>"
	a.fleet.set(aProxy("a", withMaxLeases(2)), aProxy("full"), odd)
	a.lease(`{"exclude":["crawl/a","crawl/odd"]}`)
	body := a.get("/v1/proxies").body
	var l listBody
	answer{t: t, body: body}.into(&l)
	whole, err := httpapi.Encode(l)
	require.NoError(t, err)
	assert.Equal(t, string(whole), body+"\n")
}

func FuzzTags(f *testing.F) {
	const tag = `W/"0123456789abcdef"`
	for _, seed := range []string{"", "*", tag, `"x", ` + tag, ",,,", `W/`, `"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		if matchesTag(header, tag) {
			require.True(t, strings.Contains(header, "*") || strings.Contains(header, `"0123456789abcdef"`))
		}
	})
}

func FuzzCursor(f *testing.F) {
	q := listQuery{selector: map[string]string{"geo": "eu"}}
	for _, seed := range []string{"", "x", q.cursorAfter("a/b"), "====", strings.Repeat("A", 1030), listQuery{}.cursorAfter("a/b")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		after, err := q.parseCursor(cursor)
		wantAPIError(t, err)
		if err == nil {
			again, err := q.parseCursor(q.cursorAfter(after))
			require.NoError(t, err)
			require.Equal(t, after, again)
		}
	})
}

// BenchmarkList requests the whole list of 10,000 proxies over HTTP, after changes of
// 1 % (200) and after none (304). It also compares with encoding/json alone.
func BenchmarkList(b *testing.B) {
	const n = 10_000
	snap := fleet.Snapshot{Freshness: fleet.NewFreshness([]fleet.Renewal{{Shard: v1alpha1.Shard{Index: 0, Count: 1}, At: testStart}}, testStart, time.Minute)}
	for i := range n {
		snap.Proxies = append(snap.Proxies, aProxy(fmt.Sprintf("p-%05d", i), withAttr("group", fmt.Sprint(i%50))))
	}
	still := &stillFleet{snap}
	s, err := New(Config{
		Fleet: still, Store: memory.New(clock.RealClock{}, time.Minute), Insecure: true, MaxLeaseTTL: time.Hour,
		Clock: clock.RealClock{}, Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler), Credentials: &fakeSecrets{},
	})
	require.NoError(b, err)
	h := s.Handler()
	ask := func(tag string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/v1/proxies", nil)
		r.Header.Set("If-None-Match", tag)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	b.Run("whole", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			changed := append([]*fleet.Proxy(nil), still.snap.Proxies...)
			for k := i % 100; k < n; k += 100 {
				p := *changed[k]
				changed[k] = &p
			}
			still.snap.Proxies = changed
			if w := ask(""); w.Code != http.StatusOK {
				b.Fatal(w.Code)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/list")
	})
	b.Run("unchanged", func(b *testing.B) {
		tag := ask("").Header().Get("Etag")
		for b.Loop() {
			if w := ask(tag); w.Code != http.StatusNotModified {
				b.Fatal(w.Code)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/list")
	})
	b.Run("floor=packageJSON", func(b *testing.B) {
		var l listBody
		require.NoError(b, json.Unmarshal(ask("").Body.Bytes(), &l))
		for b.Loop() {
			_, err := httpapi.Encode(l)
			require.NoError(b, err)
		}
		b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/list")
	})
}
