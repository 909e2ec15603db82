package api

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
)

// later sends a request that is expected to wait, and returns how it ends. It
// waits until the request waits.
func (a *api) later(send func() answer) <-chan answer {
	a.Helper()
	done := make(chan answer, 1)
	go func() { done <- send() }()
	require.Eventually(a, a.clock.HasWaiters, 10*time.Second, time.Millisecond, "the request waits")
	return done
}

func (a *api) leaseLater(body string) <-chan answer {
	a.Helper()
	return a.later(func() answer { return a.post("/v1/leases", body) })
}

func stillWaiting(t *testing.T, done <-chan answer) {
	t.Helper()
	select {
	case res := <-done:
		t.Fatalf("answered %d %s", res.status, res.body)
	case <-time.After(20 * time.Millisecond):
	}
}

func TestWaitIsWokenByARelease(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	g := a.lease(`{"ttlSeconds":600}`)
	done := a.leaseLater(`{"wait":30}`)
	assert.EqualValues(t, 1, single(t, a.reg, "proxy_operator_lease_requests_waiting"))
	stillWaiting(t, done)
	a.delete("/v1/leases/" + g.LeaseID)
	res := <-done
	assert.Equal(t, http.StatusCreated, res.status, res.body)
	assert.EqualValues(t, 0, single(t, a.reg, "proxy_operator_lease_requests_waiting"))
}

func TestWaitIsWokenByTheFleet(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a", withAttr("geo", "us")))
	done := a.leaseLater(`{"wait":30,"waitForMatch":true,"selector":{"geo":"eu"}}`)
	a.fleet.set(aProxy("a", withAttr("geo", "us")), aProxy("b", withAttr("geo", "us")))
	stillWaiting(t, done)
	a.fleet.set(aProxy("c"))
	res := <-done
	assert.Equal(t, http.StatusCreated, res.status, res.body)
}

// The fake clock stands still: an answer that waited would never come.
func TestWaitIsUselessWhenNothingMatches(t *testing.T) {
	a := newAPI(t)
	p := a.refused(`{"wait":30}`)
	assert.Equal(t, "there is no proxy; GET /v1/proxies lists them", p.Detail)
	a.fleet.set(aProxy("a", withMaxLeases(0)), aProxy("b"))
	p = a.refused(`{"wait":30,"selector":{"geo":"mars"}}`)
	assert.Contains(t, p.Detail, `no proxy has the attributes {"geo":"mars"}`)
	assert.Zero(t, p.RetryAfterSeconds)
	a.refused(`{"wait":30,"exclude":["crawl/b"]}`)
	for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseUnhealthy, v1alpha1.PhaseProvisioning} {
		a.fleet.set(aProxy(string(phase), inPhase(phase)))
		done := a.leaseLater(`{"wait":30}`)
		stillWaiting(t, done)
		a.fleet.set(aProxy(string(phase)))
		assert.Equal(t, http.StatusCreated, (<-done).status, "%s ends by itself", phase)
	}
}

// TestWaitIsWokenByTime: leases and cooldowns that end by themselves close no
// channel.
func TestWaitIsWokenByTime(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	a.lease(`{"ttlSeconds":20}`)
	done := a.leaseLater(`{"wait":30}`)
	a.clock.Step(20 * time.Second)
	res := <-done
	assert.Equal(t, http.StatusCreated, res.status, res.body)
}

// The store's clock is behind the server's: FreeAt has passed, and the store still
// refuses.
func TestWaitingRequestBacksOffWhenFreeAtHasPassed(t *testing.T) {
	a := newAPI(t)
	now := a.clock.Now()
	for _, free := range []time.Time{now.Add(-time.Hour), now, now.Add(time.Millisecond)} {
		assert.Equal(t, now.Add(minRetryPause), a.server.nextAttempt(free, now.Add(time.Minute)))
	}
	assert.Equal(t, now.Add(time.Second), a.server.nextAttempt(now.Add(time.Second), now.Add(time.Minute)))
	for _, free := range []time.Time{{}, now.Add(time.Hour)} {
		assert.Equal(t, now.Add(time.Minute), a.server.nextAttempt(free, now.Add(time.Minute)))
	}
}

func TestWaitEndsWithTheRefusalThatItWouldHaveBeen(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	a.lease(`{"ttlSeconds":600}`)
	done := a.leaseLater(`{"wait":30}`)
	a.clock.Step(29 * time.Second)
	stillWaiting(t, done)
	a.clock.Step(time.Second)
	p := (<-done).problem(http.StatusConflict, codeNoMatch)
	assert.Equal(t, 570, p.RetryAfterSeconds, "to the second")
	assert.Equal(t, 1, p.AtCapacity)
}

func TestNobodyWaitsForAServerThatStops(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	a.lease(`{"ttlSeconds":600}`)
	done := a.leaseLater(`{"wait":30}`)
	a.server.Drain()
	a.server.Drain()
	p := (<-done).problem(http.StatusConflict, codeNoMatch)
	assert.Equal(t, 1, p.RetryAfterSeconds, "its wait was not over: it is to come back at once, not in the 600 s that the lease has left")
}

// The proxy that becomes free goes to another client.
func TestWaitingClientDisconnects(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	g := a.lease(`{"ttlSeconds":600}`)
	ctx, hangUp := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+"/v1/leases", strings.NewReader(`{"wait":30}`))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+testToken)
	failed := make(chan error, 1)
	go func() {
		resp, err := a.client.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		failed <- err
	}()
	require.Eventually(t, a.clock.HasWaiters, 10*time.Second, time.Millisecond)
	hangUp()
	require.ErrorIs(t, <-failed, context.Canceled)
	require.Eventually(t, func() bool { return single(t, a.reg, "proxy_operator_lease_requests_waiting") == 0 }, 10*time.Second, time.Millisecond)
	a.delete("/v1/leases/" + g.LeaseID)
	a.lease(`{}`)
}

// TestALeaseForNobodyIsGivenBack: the client hangs up at the very moment of the
// grant.
func TestALeaseForNobodyIsGivenBack(t *testing.T) {
	ctx, hangUp := context.WithCancel(t.Context())
	a := newAPI(t, func(c *Config) { c.Store = hangingUp{c.Store, hangUp} })
	a.fleet.set(aProxy("a"))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/v1/leases", strings.NewReader(`{}`))
	require.NoError(t, err)
	_, err = a.server.acquire(r)
	require.Error(t, err)
	usage, err := a.store.Usage(t.Context())
	require.NoError(t, err)
	assert.Zero(t, usage.Total())
}

// limited is a listener that knows when reading from its last connection ends.
type limited struct {
	net.Listener
	until atomic.Pointer[time.Time]
}

func (l *limited) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return limitedConn{conn, l}, nil
}

type limitedConn struct {
	net.Conn
	of *limited
}

func (c limitedConn) SetReadDeadline(t time.Time) error {
	c.of.until.Store(&t)
	return c.Conn.SetReadDeadline(t)
}

// TestWaitingIsNotTakenForSlowness: the limit of the time in which a request must
// have come does not end one that has come and waits.
func TestWaitingIsNotTakenForSlowness(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	l := a.lease(`{"ttlSeconds":600}`)
	srv := httptest.NewUnstartedServer(a.server.Handler())
	reading := &limited{Listener: srv.Listener}
	srv.Listener, srv.Config.ReadTimeout = reading, time.Hour
	srv.Start()
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v1/leases", strings.NewReader(`{"wait":30}`))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+testToken)
	status := make(chan int, 1)
	go func() {
		resp, err := srv.Client().Do(req)
		if assert.NoError(t, err) {
			resp.Body.Close()
			status <- resp.StatusCode
		}
		close(status)
	}()
	require.Eventually(t, a.clock.HasWaiters, 10*time.Second, time.Millisecond, "the request waits")
	assert.Zero(t, *reading.until.Load(), "when it is ended")
	a.delete("/v1/leases/" + l.LeaseID)
	assert.Equal(t, http.StatusCreated, <-status)
}

// onceGranted is a store that does something between its first grant and the
// answer.
type onceGranted struct {
	lease.Store
	do func()
}

func (o *onceGranted) Acquire(ctx context.Context, req lease.Request) (lease.Lease, error) {
	l, err := o.Store.Acquire(ctx, req)
	if do := o.do; do != nil {
		o.do = nil
		do()
	}
	return l, err
}

// The client times out and retries, and gets the answer before the server notices the
// first disconnect.
func TestLeaseUnderAKeyIsKeptForTheRetry(t *testing.T) {
	ctx, hangUp := context.WithCancel(t.Context())
	store := &onceGranted{}
	a := newAPI(t, func(c *Config) { store.Store, c.Store = c.Store, store })
	a.fleet.set(aProxy("a"))
	try := func(ctx context.Context) (httpapi.Response, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/v1/leases", strings.NewReader(`{}`))
		require.NoError(t, err)
		r.Header.Set(keyHeader, "key")
		return a.server.acquire(r)
	}
	var second httpapi.Response
	store.do = func() {
		hangUp()
		var err error
		second, err = try(t.Context())
		require.NoError(t, err)
	}
	_, _ = try(ctx)
	grant, ok := second.Body.(grantBody)
	require.True(t, ok)
	_, err := a.store.Get(t.Context(), grant.LeaseID)
	require.NoError(t, err)
}

// Beyond maxWaiting requests are answered at once.
func TestWaitSlotsAreLimited(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	a.lease(`{"ttlSeconds":600}`)
	list := a.get("/v1/proxies")
	for range maxWaiting {
		ok, _ := a.server.takeWaitSlot(t.Context())
		require.True(t, ok)
	}
	p := a.post("/v1/leases", `{"wait":30}`).problem(http.StatusConflict, codeNoMatch)
	assert.Equal(t, 600, p.RetryAfterSeconds)
	res := a.send(http.MethodGet, "/v1/proxies?wait=30", "", "If-None-Match", list.header.Get("Etag"))
	assert.Equal(t, http.StatusNotModified, res.status)
	<-a.server.waitSlots
	done := a.leaseLater(`{"wait":30}`)
	a.clock.Step(30 * time.Second)
	(<-done).problem(http.StatusConflict, codeNoMatch)
	assert.Len(t, a.server.waitSlots, maxWaiting-1, "who waited has left")
}

func TestWaitHasBounds(t *testing.T) {
	a := newAPI(t)
	for _, body := range []string{`{"wait":31}`, `{"wait":-1}`, `{"wait":99999999999999999999}`} {
		p := a.post("/v1/leases", body).problem(http.StatusBadRequest, codeInvalidRequest)
		assert.Contains(t, p.Detail, "want a number of seconds, 0 to 30")
	}
	p := a.post("/v1/leases", `{"wait":"10s"}`).problem(http.StatusBadRequest, codeInvalidRequest)
	assert.Contains(t, p.Detail, `field "wait": want a whole number`)
}
