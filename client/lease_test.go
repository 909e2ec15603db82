package client

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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

func TestReports(t *testing.T) {
	a := &api{}
	l, err := a.client(t).Acquire(t.Context(), Want{})
	require.NoError(t, err)
	require.NoError(t, l.Report(t.Context(), Report{Result: RateLimited, Target: "other.example", RetryAfter: 6500 * time.Millisecond}))
	require.NoError(t, l.Report(t.Context(), Report{}), "nothing to report")
	assert.Equal(t, []string{`{"result":"rate_limited","target":"other.example","retryAfterSeconds":7}`}, a.reports)
	require.NoError(t, l.Release(t.Context()))
}

// A rollout of discovery does not fail reports and releases.
func TestReportsAndReleasesAreRetriedThroughAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		l, err := a.client(t).Acquire(t.Context(), Want{})
		require.NoError(t, err)
		a.back = time.Now().Add(10 * time.Second)
		require.NoError(t, l.Report(t.Context(), Report{Result: Banned}))
		a.back = time.Now().Add(10 * time.Second)
		require.NoError(t, l.Release(t.Context()))

		l, err = a.client(t).Acquire(t.Context(), Want{})
		require.NoError(t, err)
		gone := time.Now()
		a.back = gone.Add(time.Hour)
		assert.ErrorContains(t, l.Report(t.Context(), Report{Result: Banned}), "report banned: call discovery: connection reset")
		assert.ErrorContains(t, l.Release(t.Context()), "release: call discovery: connection reset")
		assert.LessOrEqual(t, time.Since(gone), 2*maxRetryTime, "not for ever")
	})
}

// Callers release in a defer, under the context that has ended.
func TestReleaseUnderAnEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		l, err := a.client(t).Acquire(t.Context(), Want{})
		require.NoError(t, err)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		a.back = time.Now().Add(time.Second)
		start := time.Now()
		require.Error(t, l.Release(ended), "discovery is down")
		assert.Zero(t, time.Since(start), "no retries after the end of the context")
		time.Sleep(time.Second)
		require.NoError(t, l.Release(ended))
		require.NoError(t, l.Release(ended))
		assert.Equal(t, 2, a.count("DELETE /v1/leases/ID"), "again after a failure, not after a success")
	})
}

func TestLeaseReportsThatItsProxyIsUnusable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status := `{"verdict":"Healthy","reason":"ProbeSucceeded","usable":true}`
		a := &api{}
		a.renew = func() reply {
			return reply{status: http.StatusOK, body: strings.TrimSuffix(a.grant(), "}") + `,"proxyStatus":` + status + "}"}
		}
		set := func(next string) {
			a.mu.Lock()
			defer a.mu.Unlock()
			status = next
		}
		l, err := a.client(t).Acquire(t.Context(), Want{})
		require.NoError(t, err)
		time.Sleep(maxPeriod + time.Second)
		assert.True(t, l.Status().Usable)
		assert.Equal(t, "ProbeSucceeded", l.Status().Reason)
		set(`{"verdict":"Unhealthy","reason":"ConnectTimeout","usable":false}`)
		start := time.Now()
		<-l.Unusable()
		assert.LessOrEqual(t, time.Since(start), maxPeriod)
		require.NoError(t, l.Err(), "the lease goes on")
		set(`{"verdict":"Healthy","reason":"ProbeSucceeded","usable":true}`)
		time.Sleep(maxPeriod)
		assert.False(t, l.Status().Usable, "a holder who was slow to look still learns of it")
		require.NoError(t, l.Release(t.Context()))
	})
}
