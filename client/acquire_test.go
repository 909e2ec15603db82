package client

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{acquire: []reply{
			{status: http.StatusTooManyRequests, retryAfter: "7"}, {status: http.StatusServiceUnavailable, retryAfter: "3"},
		}}
		start := time.Now()
		l, err := a.client(t).Acquire(t.Context(), Want{})
		require.NoError(t, err)
		assert.Equal(t, 10*time.Second, time.Since(start))
		assert.Equal(t, []int64{30, 30, 30}, a.waits, "within its patience of a minute")
		require.NoError(t, l.Release(t.Context()))
	})
}

func TestAcquireRetriesUnderTheSameKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{acquire: []reply{{}, {status: http.StatusBadGateway, body: "<html>"}}}
		l, err := a.client(t).Acquire(t.Context(), Want{})
		require.NoError(t, err)
		require.NoError(t, l.Release(t.Context()))
		require.Len(t, a.keys, 3)
		assert.NotEmpty(t, a.keys[0])
		assert.Equal(t, a.keys[0], a.keys[1])
		assert.Equal(t, a.keys[0], a.keys[2])
		l, err = a.client(t).Acquire(t.Context(), Want{})
		require.NoError(t, err)
		require.NoError(t, l.Release(t.Context()))
		assert.NotEqual(t, a.keys[0], a.keys[3], "and another lease under another")
	})
}

func TestNoProxy(t *testing.T) {
	for name, test := range map[string]struct {
		reply reply
		want  Want
	}{
		"nothing matches": {reply{status: http.StatusConflict, body: `{"error":"no_match","message":"none","considered":3,"disabled":3}`}, Want{}},
		"no patience":     {reply{status: http.StatusConflict, retryAfter: "1", body: `{"error":"no_match","considered":3,"disabled":3}`}, Want{Patience: -1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &api{acquire: []reply{test.reply}}
			start := time.Now()
			_, err := a.client(t).Acquire(t.Context(), test.want)
			require.ErrorIs(t, err, ErrNoProxy, name)
			var e *APIError
			require.ErrorAs(t, err, &e)
			assert.Equal(t, Counts{Considered: 3, Disabled: 3}, e.Counts)
			assert.Zero(t, time.Since(start), "at once")
		})
	}
}

func TestPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away []reply
		for range 1000 {
			away = append(away, reply{})
		}
		start := time.Now()
		_, err := (&api{acquire: away}).client(t).Acquire(t.Context(), Want{Patience: 10 * time.Second})
		assert.ErrorContains(t, err, "call discovery: connection reset")
		assert.NotErrorIs(t, err, ErrNoProxy)
		assert.LessOrEqual(t, time.Since(start), 10*time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err = (&api{acquire: away}).client(t).Acquire(ctx, Want{})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestInvalidRequestsAreNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{acquire: []reply{{status: http.StatusBadRequest, body: `{"error":"invalid_ttl","message":"too long","instance":"req"}`}}}
		_, err := a.client(t).Acquire(t.Context(), Want{TTL: 100 * time.Hour})
		assert.EqualError(t, err, "discovery answered 400 invalid_ttl: too long")
		a = &api{acquire: []reply{{status: http.StatusCreated, body: `{"leaseID":"x","proxyURL":"CANARY"}`}}}
		_, err = a.client(t).Acquire(t.Context(), Want{})
		assert.EqualError(t, err, "discovery's grant has no leaseID, no proxyURL or no ttlSeconds")
	})
	for _, bad := range []string{"", "discovery:8090", "ftp://x", "http://", "http://%zz"} {
		_, err := New(Config{URL: bad})
		assert.ErrorContains(t, err, "want http://host:port or https://host", bad)
	}
}

// FuzzGrants: a lease of any bytes is renewed at a bounded rate, and can be released.
func FuzzGrants(f *testing.F) {
	const good = `{"leaseID":"ID","proxy":{"name":"a","namespace":"crawl"},"proxyURL":"http://u:p@127.0.0.1:1","expiresAt":"2000-01-01T00:05:00Z","ttlSeconds":300,"fencingToken":7}`
	f.Add([]byte(good), []byte(good), "Sat, 01 Jan 2000 00:00:00 GMT")
	f.Add([]byte(good), []byte(`{"leaseID":"ID","expiresAt":"9999-12-31T23:59:59Z"}`), "")
	f.Add([]byte(`{"leaseID":"..","proxyURL":"http://h","ttlSeconds":9223372036854775807}`), []byte(`{}`), "x")
	f.Add([]byte(`{"leaseID":"a/b?c","proxyURL":"socks5://[::1%25a]:x","ttlSeconds":1,"expiresAt":"0001-01-01T00:00:00Z"}`), []byte(`null`), "Sat, 01 Jan 0000 00:00:00 GMT")
	f.Fuzz(func(t *testing.T, granted, renewed []byte, date string) {
		synctest.Test(t, func(t *testing.T) {
			w := &wire{granted: granted, renewed: renewed, date: date}
			c, err := New(Config{URL: "http://discovery.invalid/", HTTPClient: &http.Client{Transport: w}, Transport: &http.Transport{}})
			require.NoError(t, err)
			l, err := c.Acquire(t.Context(), Want{Patience: -1})
			if err != nil {
				require.NotEmpty(t, err.Error())
				return
			}
			require.NotEmpty(t, l.ID)
			require.NotEmpty(t, l.ProxyURL.Host)
			require.Greater(t, l.ttl, time.Duration(0))
			time.Sleep(10 * time.Second)
			if l.Err() != nil {
				require.ErrorIs(t, l.Err(), ErrLost)
			}
			require.LessOrEqual(t, w.renewals, 250, "renewals in 10 s")
			require.NoError(t, l.Release(t.Context()))
		})
	})
}

// wire is a transport that returns arbitrary bytes.
type wire struct {
	granted, renewed []byte
	date             string
	renewals         int
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := http.StatusNoContent, []byte(nil)
	switch {
	case r.URL.Path == "/v1/leases":
		status, body = http.StatusCreated, w.granted
	case strings.HasSuffix(r.URL.Path, "/renew"):
		w.renewals++
		status, body = http.StatusOK, w.renewed
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Date": {w.date}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
}

// busy answers every acquire before a time with a 409 after the whole wait, as discovery
// does, and a Retry-After beyond every patience.
func busy(until time.Time) *api {
	a := &api{}
	a.onWait = func(wait time.Duration) (reply, bool) {
		if free := time.Until(until); free <= wait {
			time.Sleep(max(0, free))
			return reply{}, false
		}
		time.Sleep(wait)
		return reply{status: http.StatusConflict, retryAfter: "600", body: `{"error":"no_match","considered":3,"inCooldown":3}`}, true
	}
	return a
}

func TestPatienceIsTheWholeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l, err := busy(start.Add(36*time.Second)).client(t).Acquire(t.Context(), Want{Patience: time.Minute})
		require.NoError(t, err)
		assert.Equal(t, 36*time.Second, time.Since(start))
		require.NoError(t, l.Release(t.Context()))

		start = time.Now()
		a := busy(start.Add(time.Hour))
		_, err = a.client(t).Acquire(t.Context(), Want{Patience: 100 * time.Second, WaitForMatch: true, Schemes: []string{"http"}})
		require.ErrorIs(t, err, ErrNoProxy)
		assert.InDelta(t, 100, time.Since(start).Seconds(), 1)
		assert.LessOrEqual(t, len(a.waits), 8)
	})
}

// Discovery sends no Retry-After when nothing matches.
func TestWaitForMatchLastsTheWholePatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		a := &api{}
		a.onWait = func(wait time.Duration) (reply, bool) {
			time.Sleep(wait)
			return reply{status: http.StatusConflict, body: `{"error":"no_match"}`}, time.Since(start) < 80*time.Second
		}
		l, err := a.client(t).Acquire(t.Context(), Want{Patience: 2 * time.Minute, WaitForMatch: true})
		require.NoError(t, err)
		assert.Equal(t, []int64{30, 30, 30}, a.waits)
		require.NoError(t, l.Release(t.Context()))
	})
}

// The grant may be on the way when the caller gives up, or the answer lost.
func TestAbandonedAcquireLeavesNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, acquire := range map[string][]reply{
			"the caller gives up":       nil,
			"no answer":                 {{}},
			"an answer in its place":    {{status: http.StatusBadGateway, body: "<html>"}},
			"a page as the grant":       {{status: http.StatusCreated, body: "<html>"}},
			"a grant without a TTL":     {{status: http.StatusCreated, body: `{"leaseID":"ID","proxyURL":"http://h:1"}`}},
			"a scheme that is not ours": {{status: http.StatusCreated, body: `{"leaseID":"ID","proxyURL":"socks4://h:1","ttlSeconds":60}`}},
		} {
			a := &api{acquire: acquire}
			ctx, cancel := context.WithCancel(t.Context())
			if acquire == nil {
				a.onWait = func(wait time.Duration) (reply, bool) {
					cancel()
					return reply{}, wait > 0 // the answer is lost
				}
			}
			want := Want{Patience: 200 * time.Microsecond}
			if acquire == nil {
				want.Patience = time.Minute
			}
			_, err := a.client(t).Acquire(ctx, want)
			cancel()
			require.Error(t, err, name)
			require.Len(t, a.keys, 2, name)
			assert.Equal(t, a.keys[0], a.keys[1], name)
			assert.Zero(t, a.waits[1], name)
			assert.Equal(t, 1, a.count("DELETE /v1/leases/ID"), name)
		}
		a := &api{acquire: []reply{{status: http.StatusConflict, body: `{"error":"no_match"}`}}}
		_, err := a.client(t).Acquire(t.Context(), Want{Patience: -1})
		require.ErrorIs(t, err, ErrNoProxy)
		assert.Len(t, a.calls, 1, "a refusal leaves nothing to undo")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = a.client(t).Acquire(ctx, Want{})
		require.ErrorIs(t, err, context.Canceled)
		assert.Len(t, a.calls, 1, "nothing was sent")
	})
}

func TestOnlySchemesOfTheRequestAreTaken(t *testing.T) {
	a := &api{proxyURL: "socks5://127.0.0.1:1"}
	_, err := a.client(t).Acquire(t.Context(), Want{Schemes: []string{"http", "https"}})
	assert.EqualError(t, err, `discovery granted a proxy of the scheme "socks5", want http, https`)
	assert.Equal(t, 1, a.count("DELETE /v1/leases/ID"))
	l, err := a.client(t).Acquire(t.Context(), Want{})
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
}

func TestShortWaitsAreRetriedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{onWait: func(time.Duration) (reply, bool) {
			return reply{status: http.StatusConflict, retryAfter: "600", body: `{"error":"no_match","atCapacity":1}`}, true
		}}
		_, err := a.client(t).Acquire(t.Context(), Want{})
		require.ErrorIs(t, err, ErrNoProxy)
		assert.LessOrEqual(t, len(a.waits), 30, "in a minute, although discovery does not let it wait")
	})
}
