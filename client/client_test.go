package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// api is a discovery with scripted answers and without a network, for synctest.
type api struct {
	mu       sync.Mutex
	acquire  []reply // one after the other; a grant when they are used up
	renew    func() reply
	back     time.Time // until then it is away
	proxyURL string
	ttl      time.Duration

	keys, calls []string
	waits       []int64
}

type reply struct {
	status     int // 0: no answer
	retryAfter string
	body       string
}

func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, r.Method+" "+r.URL.Path)
	res := reply{status: http.StatusNoContent}
	switch {
	case time.Now().Before(a.back):
		res.status = 0
	case r.Method == http.MethodPost && r.URL.Path == "/v1/leases":
		res = a.onAcquire(r)
	case strings.HasSuffix(r.URL.Path, "/renew"):
		res = reply{status: http.StatusOK, body: a.grant()}
		if a.renew != nil {
			res = a.renew()
		}
	}
	if res.status == 0 {
		return nil, errors.New("connection reset")
	}
	h := http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}}
	if res.retryAfter != "" {
		h.Set("Retry-After", res.retryAfter)
	}
	return &http.Response{StatusCode: res.status, Header: h, Body: io.NopCloser(strings.NewReader(res.body)), Request: r}, nil
}

// renewFrom answers renewals with away before that time.
func (a *api) renewFrom(back time.Time, away reply) {
	a.renew = func() reply {
		if time.Now().Before(back) {
			return away
		}
		return reply{status: http.StatusOK, body: a.grant()}
	}
}

func (a *api) onAcquire(r *http.Request) reply {
	var body acquireBody
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return reply{status: http.StatusBadRequest}
	}
	a.keys, a.waits = append(a.keys, r.Header.Get("Idempotency-Key")), append(a.waits, body.Wait)
	a.ttl = time.Duration(body.TTLSeconds) * time.Second
	if len(a.acquire) == 0 {
		return reply{status: http.StatusCreated, body: a.grant()}
	}
	next := a.acquire[0]
	a.acquire = a.acquire[1:]
	return next
}

func (a *api) grant() string {
	at := a.proxyURL
	if at == "" {
		at = "http://u:CANARY@127.0.0.1:1"
	}
	return fmt.Sprintf(`{"leaseID":"ID","proxy":{"name":"a","namespace":"crawl"},"proxyURL":%q,"expiresAt":%q,"ttlSeconds":%d,"target":"","fencingToken":7}`,
		at, time.Now().Add(a.ttl).UTC().Format(time.RFC3339Nano), int(a.ttl/time.Second))
}

func (a *api) count(call string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.calls {
		if c == call {
			n++
		}
	}
	return n
}

func (a *api) client(t *testing.T) *Client {
	t.Helper()
	c, err := New(Config{URL: "http://discovery.invalid/", Token: "CANARY-token", HTTPClient: &http.Client{Transport: a}, Transport: &http.Transport{}})
	require.NoError(t, err)
	return c
}

func TestALeaseIsRenewedUntilItIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		l, err := a.client(t).Acquire(t.Context(), Want{TTL: time.Minute})
		require.NoError(t, err)
		assert.Equal(t, uint64(7), l.FencingToken)
		time.Sleep(time.Hour + time.Second)
		require.NoError(t, l.Err())
		assert.Equal(t, 180, a.count("POST /v1/leases/ID/renew"), "at a third of its time")
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, l.Release(t.Context()))
		assert.Equal(t, 1, a.count("DELETE /v1/leases/ID"))
		assert.ErrorIs(t, l.Err(), ErrReleased)
		time.Sleep(time.Hour)
		assert.Equal(t, 180, a.count("POST /v1/leases/ID/renew"))
	})
}

func TestOnLostReceivesTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{renew: func() reply {
			return reply{status: http.StatusGone, body: `{"error":"lease_gone","message":"replaced","reason":"instance_replaced"}`}
		}}
		var told []error
		err := a.client(t).Use(t.Context(), Want{TTL: time.Minute, OnLost: func(_ *Lease, err error) { told = append(told, err) }}, func(ctx context.Context, _ *Lease) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, ErrLost)
		var gone *APIError
		require.ErrorAs(t, err, &gone)
		assert.Equal(t, "instance_replaced", gone.Reason)
		synctest.Wait()
		require.Len(t, told, 1)
		assert.ErrorIs(t, told[0], ErrLost)
		assert.Equal(t, 1, a.count("DELETE /v1/leases/ID"), "it is given back all the same")
	})
}

// OnLost usually acquires another lease, and may release the lost one.
func TestOnLostMayRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{renew: func() reply { return reply{status: http.StatusNotFound, body: `{"error":"unknown_lease"}`} }}
		released := make(chan error, 1)
		_, err := a.client(t).Acquire(t.Context(), Want{TTL: time.Minute, OnLost: func(l *Lease, _ error) { released <- l.Release(t.Context()) }})
		require.NoError(t, err)
		select {
		case err := <-released:
			require.NoError(t, err)
		case <-time.After(time.Hour):
			t.Fatal("it waits for itself")
		}
	})
}

// A page of an intermediary neither renews nor loses the lease.
func TestOnlyARenewalRenews(t *testing.T) {
	for _, page := range []string{`{}`, `null`, `[]`, `<html>`, `{"leaseID":"OTHER","expiresAt":"2001-01-01T00:00:00Z","ttlSeconds":60}`, `{"leaseID":"ID"}`} {
		synctest.Test(t, func(t *testing.T) {
			a, pages := &api{}, 3
			a.renew = func() reply {
				if pages--; pages >= 0 {
					return reply{status: http.StatusOK, body: page}
				}
				return reply{status: http.StatusOK, body: a.grant()}
			}
			l, err := a.client(t).Acquire(t.Context(), Want{TTL: time.Minute})
			require.NoError(t, err)
			time.Sleep(10 * time.Minute)
			require.NoError(t, l.Err(), page)
			require.NoError(t, l.Release(t.Context()))
		})
	}
}

func TestErrorsOmitTheDiscoveryURL(t *testing.T) {
	for _, u := range []string{"http://u:CANARY@", "ftp://u:CANARY@host", "http://u:CANARY@host:port"} {
		_, err := New(Config{URL: u})
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "CANARY")
	}
}

// Programs replace http.DefaultTransport by wrappers, for traces and tests.
func TestDefaultTransportOfAnotherType(t *testing.T) {
	before := http.DefaultTransport
	t.Cleanup(func() { http.DefaultTransport = before })
	http.DefaultTransport = &api{}
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Config{URL: "http://discovery.invalid", HTTPClient: &http.Client{Transport: &api{}}})
		require.NoError(t, err)
		l, err := c.Acquire(t.Context(), Want{})
		require.NoError(t, err)
		require.NoError(t, l.Release(t.Context()))
	})
}

// The lease ends before discovery can grant the proxy to another client.
func TestLeaseExpiresWhenRenewalsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{renew: func() reply { return reply{} }}
		l, err := a.client(t).Acquire(t.Context(), Want{TTL: time.Minute})
		require.NoError(t, err)
		start := time.Now()
		<-l.Done()
		assert.ErrorIs(t, l.Err(), ErrLost)
		assert.LessOrEqual(t, time.Since(start), time.Minute)
		assert.GreaterOrEqual(t, time.Since(start), 58*time.Second)
		assert.Greater(t, a.count("POST /v1/leases/ID/renew"), 5, "it kept trying")
		require.NoError(t, l.Release(t.Context()))
	})
}

// Every answer, also of an intermediary, becomes an error that can be printed.
func FuzzAnswers(f *testing.F) {
	f.Add(409, "7", `{"error":"no_match","considered":3}`)
	f.Add(502, "soon", "<html>")
	f.Add(503, "-1", `{"error":7}`)
	f.Add(410, "99999999999999999999", `[]`)
	f.Fuzz(func(t *testing.T, status int, after, body string) {
		err := newAPIError(answer{status: status, header: http.Header{"Retry-After": {after}}, body: []byte(body)})
		require.NotEmpty(t, err.Error())
		require.GreaterOrEqual(t, err.RetryAfter, time.Duration(0))
		retryable(err)
		ended(err)
	})
}

func TestRenewalIsRetriedWhileDiscoveryIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		a.renewFrom(time.Now().Add(50*time.Second), reply{status: http.StatusServiceUnavailable, retryAfter: "5"})
		l, err := a.client(t).Acquire(t.Context(), Want{TTL: time.Minute})
		require.NoError(t, err)
		time.Sleep(5 * time.Minute)
		assert.NoError(t, l.Err())
		require.NoError(t, l.Release(t.Context()))
	})
}

// Discovery is up again shortly before the lease expires, after a Retry-After beyond
// that, or without one.
func TestRenewalIsRetriedJustBeforeExpiry(t *testing.T) {
	for _, away := range []reply{{}, {status: http.StatusServiceUnavailable, retryAfter: "60"}, {status: http.StatusBadGateway}} {
		for range 20 { // pauses are random
			synctest.Test(t, func(t *testing.T) {
				a := &api{}
				a.renewFrom(time.Now().Add(13*time.Second), away)
				l, err := a.client(t).Acquire(t.Context(), Want{TTL: 15 * time.Second})
				require.NoError(t, err)
				time.Sleep(time.Minute)
				require.NoError(t, l.Err(), "%+v", away)
				assert.LessOrEqual(t, a.count("POST /v1/leases/ID/renew"), 30, "nor is it asked all the time")
				require.NoError(t, l.Release(t.Context()))
			})
		}
	}
}

// After the retry of a lost grant, little time of the lease may be left.
func TestReplayedGrantIsRenewedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{ttl: 5 * time.Second}
		nearly := strings.Replace(a.grant(), `"ttlSeconds":5`, `"ttlSeconds":60`, 1)
		a.acquire = []reply{{status: http.StatusCreated, body: nearly}}
		l, err := a.client(t).Acquire(t.Context(), Want{TTL: time.Minute})
		require.NoError(t, err)
		time.Sleep(5 * time.Minute)
		assert.NoError(t, l.Err())
		require.NoError(t, l.Release(t.Context()))
	})
}

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{acquire: []reply{
			{status: http.StatusTooManyRequests, retryAfter: "7"}, {status: http.StatusServiceUnavailable, retryAfter: "3"},
			{status: http.StatusConflict, retryAfter: "20", body: `{"error":"no_match"}`},
		}}
		start := time.Now()
		l, err := a.client(t).Acquire(t.Context(), Want{})
		require.NoError(t, err)
		assert.Equal(t, 30*time.Second, time.Since(start))
		assert.Equal(t, []int64{30, 30, 30, 30}, a.waits, "within its patience of a minute")
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
		"too long":        {reply{status: http.StatusConflict, retryAfter: "600", body: `{"error":"no_match","considered":3,"disabled":3}`}, Want{}},
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
			assert.Zero(t, time.Since(start), "it is said at once")
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

func TestReports(t *testing.T) {
	a := &api{}
	l, err := a.client(t).Acquire(t.Context(), Want{})
	require.NoError(t, err)
	require.NoError(t, l.Report(t.Context(), Banned, "other.example"))
	assert.Equal(t, 1, a.count("POST /v1/leases/ID/report"))
	require.NoError(t, l.Release(t.Context()))
}

// A rollout of discovery does not fail reports and releases.
func TestReportsAndReleasesAreRetriedThroughAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		l, err := a.client(t).Acquire(t.Context(), Want{})
		require.NoError(t, err)
		a.back = time.Now().Add(10 * time.Second)
		require.NoError(t, l.Report(t.Context(), Banned, ""))
		a.back = time.Now().Add(10 * time.Second)
		require.NoError(t, l.Release(t.Context()))

		l, err = a.client(t).Acquire(t.Context(), Want{})
		require.NoError(t, err)
		gone := time.Now()
		a.back = gone.Add(time.Hour)
		assert.ErrorContains(t, l.Report(t.Context(), Banned, ""), "report banned: call discovery: connection reset")
		assert.ErrorContains(t, l.Release(t.Context()), "release: call discovery: connection reset")
		assert.LessOrEqual(t, time.Since(gone), 2*maxRetryTime, "not for ever")
	})
}

// Tunnels are closed also while a goroutine reads from them, and no new ones open.
func TestEndOfLeaseClosesItsTunnels(t *testing.T) {
	ca := probetest.NewCA(t)
	target := probetest.ServeTLS(t, ca.Certificate(t, "site.example", time.Now().Add(time.Hour)), probetest.TextAndHang("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nrea"))
	proxy := probetest.StartProxy(t, probetest.Forward(probetest.To(net.JoinHostPort(target.Host(), fmt.Sprint(target.Port()))), probetest.RequireBasic("u", "CANARY")))
	a := &api{proxyURL: fmt.Sprintf("http://u:CANARY@%s:%d", proxy.Host(), proxy.Port())}
	c := a.client(t)
	c.transport = trusting(ca.Pool())
	l, err := c.Acquire(t.Context(), Want{})
	require.NoError(t, err)
	resp, err := l.HTTPClient().Get("https://site.example/")
	require.NoError(t, err)
	read := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(resp.Body)
		read <- err
	}()
	require.NoError(t, l.Release(t.Context()))
	assert.Error(t, <-read)
	_ = resp.Body.Close()
	l.tunnels.mu.Lock()
	assert.Empty(t, l.tunnels.open)
	l.tunnels.mu.Unlock()
	_, err = l.HTTPClient().Get("https://site.example/")
	require.ErrorIs(t, err, ErrReleased)
	assert.NotContains(t, err.Error(), "CANARY")
}

func trusting(pool *x509.CertPool) *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
}

type slow struct{ error }

func (slow) Timeout() bool   { return true }
func (slow) Temporary() bool { return true }

func TestJudge(t *testing.T) {
	for status, want := range map[int]Result{200: OK, 302: OK, 403: Banned, 404: "", 429: RateLimited, 451: Banned, 500: ""} {
		got, known := Judge(&http.Response{StatusCode: status}, nil)
		assert.Equal(t, want, got, status)
		assert.Equal(t, want != "", known)
	}
	for _, test := range []struct {
		err  error
		want Result
	}{
		{&net.OpError{Op: "proxyconnect", Err: errors.New("refused")}, ConnectError},
		{&net.OpError{Op: "proxyconnect", Err: slow{errors.New("late")}}, ProxyTimeout},
		{&url.Error{Op: "Get", Err: slow{errors.New("late")}}, TargetTimeout},
		{errors.New("Proxy Authentication Required"), ConnectError},
		{ErrReleased, ""}, {fmt.Errorf("x: %w", ErrLost), ""}, {errors.New("EOF"), ""},
	} {
		got, _ := Judge(nil, test.err)
		assert.Equal(t, test.want, got, test.err.Error())
	}
}
