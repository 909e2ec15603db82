package api

import (
	"errors"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

func TestNormalizeTarget(t *testing.T) {
	tests := map[string]string{
		"":                                    "",
		"example.com":                         "example.com",
		"EXAMPLE.Com":                         "example.com",
		" example.com\n":                      "example.com",
		"example.com.":                        "example.com",
		"example.com:443":                     "example.com",
		"example.com/a/b?c#d":                 "example.com",
		"https://www.Example.com/a?b=c#d":     "www.example.com",
		"http://user:pass@example.com:8080/x": "example.com",
		"user:pass@example.com":               "example.com",
		"//example.com/x":                     "example.com",
		"ftp://example.com":                   "example.com",
		"xn--bro-hoa.example":                 "xn--bro-hoa.example",
		"my_crawl-group":                      "my_crawl-group",
		"192.0.2.7":                           "192.0.2.7",
		"192.0.2.7:8080":                      "192.0.2.7",
		"2001:DB8::0:7":                       "2001:db8::7",
		"[2001:db8::7]:443":                   "2001:db8::7",
		"https://[2001:db8::7]/":              "2001:db8::7",
		"::ffff:192.0.2.7":                    "192.0.2.7",
		"fe80::1%eth0":                        "fe80::1",
		"localhost":                           "localhost",
	}
	for raw, want := range tests {
		got, err := normalizeTarget(raw)
		require.NoError(t, err, raw)
		assert.Equal(t, want, got, raw)
	}
	for _, raw := range []string{" ", ".", "...", "/", "://", "http://", "https:///x", "http://:80/", "a b", "b\x00", "exämple.com", "a,b", "*.example.com", "http://a:b:c", "[::1", "http://[::1", "?", "#x", "a\nb", "@"} {
		_, err := normalizeTarget(raw)
		var e *apiError
		require.ErrorAs(t, err, &e, "%q", raw)
		assert.Equal(t, codeInvalidRequest, e.code)
	}
}

// FuzzNormalizeTarget: what comes out is safe to print and to keep, and comes
// out again when put in.
func FuzzNormalizeTarget(f *testing.F) {
	for _, seed := range []string{"", "example.com", "https://u:p@Example.com:8080/x?y#z", "[::1]:80", "::ffff:1.2.3.4", "a..", "http://%41.example", "exämple", "fe80::1%25x", "1.2.3.4."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := normalizeTarget(raw)
		if err != nil {
			var e *apiError
			require.ErrorAs(t, err, &e)
			if len(raw) > 3 && strings.Contains(raw, "@") {
				require.NotContains(t, e.detail, raw)
			}
			return
		}
		again, err := normalizeTarget(got)
		require.NoError(t, err)
		require.Equal(t, got, again)
		require.LessOrEqual(t, len(got), maxTargetHost)
		require.Equal(t, strings.ToLower(got), got)
		if _, err := netip.ParseAddr(got); err != nil {
			require.NotContains(t, got, ":")
		}
	})
}

// wantAPIError fails on errors that would be answered with 500.
func wantAPIError(t *testing.T, err error) {
	t.Helper()
	var tooLarge *http.MaxBytesError
	if err == nil || errors.As(err, &tooLarge) {
		return
	}
	var e *apiError
	require.ErrorAs(t, err, &e)
	require.Less(t, problems[e.code].status, http.StatusInternalServerError)
	require.GreaterOrEqual(t, problems[e.code].status, http.StatusBadRequest)
	require.Less(t, len(e.detail), 1000)
}

func FuzzAcquireBody(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `null`, `{"selector":{"geo":"eu"},"ttlSeconds":300,"target":"example.com"}`, `{"ttlSeconds":-1}`, `{"ttlSeconds":1e3}`,
		`{"selector":{"a":{}}}`, `{}{}`, `{"selector":`, `{"a":1}`, `{"target":"a","target":"b"}`, `[[[[`, `{"wait":30,"session":"a","exclude":["a/b","c/d"]}`, `{"exclude":[null]}`, `{"schemes":["http","socks5"],"waitForMatch":true}`, `{"schemes":[null]}`, `{"exclude":[[]]}`, `{"selector":{"a":"\ud800"}}`, "{\"\x00\":1}",
	} {
		f.Add(seed, "application/json")
	}
	f.Add(`{}`, "text/plain")
	f.Add(`{}`, strings.Repeat("\x82", 2000))
	s := &Server{cfg: Config{MaxLeaseTTL: time.Hour}}
	f.Fuzz(func(t *testing.T, body, contentType string) {
		r := httptest.NewRequest(http.MethodPost, "/v1/leases", strings.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		req, err := s.decodeAcquire(r)
		wantAPIError(t, err)
		if err != nil {
			return
		}
		require.True(t, strings.HasPrefix(strings.TrimSpace(body), "{"))
		require.GreaterOrEqual(t, req.TTL, time.Second)
		require.LessOrEqual(t, req.TTL, time.Hour)
		require.LessOrEqual(t, len(req.Selector), maxSelectorEntries)
		require.LessOrEqual(t, len(req.Target), maxTargetHost)
		require.LessOrEqual(t, len(req.Session), maxSession)
		require.LessOrEqual(t, len(req.Exclude), maxExcluded)
		require.LessOrEqual(t, len(req.Schemes), len(schemes))
		require.LessOrEqual(t, req.wait, maxWait)
		require.GreaterOrEqual(t, req.wait, time.Duration(0))
	})
}

func FuzzReportBody(f *testing.F) {
	for _, seed := range []string{``, `{"result":"ok"}`, `{"result":"banned","target":"https://example.com"}`, `{"result":null}`, `{"result":["ok"]}`, `{"result":"ok"`, `{"result":"banned","retryAfterSeconds":99999999999999999999}`, `{"retryAfterSeconds":-1}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		var rep reportBody
		err := decodeObject([]byte(body), &rep)
		wantAPIError(t, err)
		if err == nil {
			length, err := reportedRetryAfter(lease.Result(rep.Result), rep.RetryAfterSeconds)
			wantAPIError(t, err)
			require.LessOrEqual(t, length, lease.MaxRetryAfter)
			require.GreaterOrEqual(t, length, time.Duration(0))
		}
	})
}

func FuzzListQuery(f *testing.F) {
	for _, seed := range []string{"", "attr.geo=eu&healthy=true", "healthy=maybe", "attr.=x", "%zz", "a;b", "attr.a=1&attr.a=2", "=", "&&&", "attr.%00=%ff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := parseListQuery(raw)
		wantAPIError(t, err)
		if err == nil {
			require.LessOrEqual(t, len(q.selector), maxSelectorEntries)
			again, err := parseListQuery(raw)
			require.NoError(t, err)
			require.Equal(t, q, again)
		}
	})
}

func FuzzLeaseQuery(f *testing.F) {
	whole := leaseQuery{lease.Query{Proxy: "crawl/a", Holder: "h", Session: "s", Target: "shop.example"}}
	for _, seed := range []string{
		"", "proxy=crawl/a&holder=h&session=s&target=shop.example&limit=7&cursor=" + whole.cursorAfter(1<<60), "proxy=a", "limit=0", "limit=1001",
		"cursor=", "cursor=MSA=", "cursor=" + whole.cursorAfter(7), "target=?", "proxy=a/b&proxy=c/d", "%zz", "a;b", "holder=%ff",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := parseLeaseQuery(raw)
		wantAPIError(t, err)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, q.Limit, 1)
		require.LessOrEqual(t, q.Limit, maxLimit)
		require.LessOrEqual(t, len(q.Target), maxTargetHost)
		after, err := q.parseCursor(q.cursorAfter(q.After + 1))
		if q.After < math.MaxUint64 {
			require.NoError(t, err)
			require.Equal(t, q.After+1, after)
		}
		other := q
		other.Holder += "x"
		_, err = other.parseCursor(q.cursorAfter(7))
		require.Error(t, err)
	})
}

// TestBodiesThatDoNotArrive: what the network says names addresses of ours, and
// so is not told where it is no use.
func TestBodiesThatDoNotArrive(t *testing.T) {
	late := &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7)}, Err: os.ErrDeadlineExceeded}
	r := httptest.NewRequest(http.MethodPost, "/v1/leases", iotest.ErrReader(late))

	err := decodeBody(r, &reportBody{})

	wantAPIError(t, err)
	assert.ErrorContains(t, err, "timed out reading the request body")
	assert.NotContains(t, err.Error(), "192.0.2.7")
}
