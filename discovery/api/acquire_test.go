package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
)

func TestAcquireGrants(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"), aProxy("b", withAttr("geo", "us")))
	res := a.post("/v1/leases", `{"selector":{"geo":"us"},"ttlSeconds":120,"target":"https://Shop.Example.com/cart?x=1"}`)
	require.Equal(t, http.StatusCreated, res.status, res.body)
	var g grantBody
	res.into(&g)
	assert.Equal(t, leasedProxy{Name: "b", Namespace: "crawl", Host: "10.0.0.7", Port: 3128, Attributes: map[string]string{"geo": "us"}}, g.Proxy)
	assert.Equal(t, "http://10.0.0.7:3128", g.ProxyURL)
	assert.Contains(t, res.body, `"expiresAt":"2026-11-01T12:02:00Z"`)
	assert.EqualValues(t, 120, g.TTLSeconds)
	assert.Equal(t, "shop.example.com", g.Target)
	assert.Positive(t, g.FencingToken)
	assert.Equal(t, "/v1/leases/"+g.LeaseID, res.header.Get("Location"))
	assert.Equal(t, "no-store", res.header.Get("Cache-Control"))
	assert.Equal(t, http.StatusNoContent, a.delete(res.header.Get("Location")).status, "the Location is the lease")
}

func TestAcquireDefaults(t *testing.T) {
	for _, body := range []string{`{}`, `{"selector":null,"ttlSeconds":null,"target":null}`, `{"selector":{},"target":""}`, " \n{ } \n"} {
		a := newAPI(t)
		a.fleet.set(aProxy("a"))
		g := a.lease(body)
		assert.EqualValues(t, 300, g.TTLSeconds)
		assert.Empty(t, g.Target)
	}
	short := newAPI(t, func(c *Config) { c.MaxLeaseTTL = 90*time.Second + time.Millisecond })
	short.fleet.set(aProxy("a"))
	assert.EqualValues(t, 90, short.lease(`{}`).TTLSeconds, "never above the maximum")
}

func TestAcquireTakesWhatCurlSends(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a", withMaxLeases(9)))
	for _, contentType := range []string{"application/json", "application/json; charset=utf-8", "APPLICATION/JSON", "application/x-www-form-urlencoded", ""} {
		res := a.send(http.MethodPost, "/v1/leases", `{}`, "Content-Type", contentType)
		assert.Equal(t, http.StatusCreated, res.status, contentType)
	}
}

func TestAcquireSaysHowTheProxyIsSpokenTo(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("tls", func(p *fleet.Proxy) { p.Scheme = string(v1alpha1.SchemeHTTPS) }))
	assert.Equal(t, "https://10.0.0.7:3128", a.lease(`{}`).ProxyURL)
}

func TestAcquireWritesIPv6AndNamesIntoTheURL(t *testing.T) {
	a := newAPI(t)
	for host, want := range map[string]string{
		"2001:db8::7":   "http://[2001:db8::7]:3128",
		"proxy.example": "http://proxy.example:3128",
	} {
		a.fleet.set(aProxy("p-"+want[7:9], func(p *fleet.Proxy) { p.Host = host }))
		g := a.lease(`{}`)
		assert.Equal(t, want, g.ProxyURL)
		_, err := url.Parse(g.ProxyURL)
		assert.NoError(t, err)
		a.delete("/v1/leases/" + g.LeaseID)
	}
}

func TestAcquireOffersOnlyWhatIsLeasable(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(
		aProxy("sick", inPhase(v1alpha1.PhaseUnhealthy)),
		aProxy("new", inPhase(v1alpha1.PhaseProvisioning)),
		aProxy("probing", inPhase(v1alpha1.PhaseProbing)),
		aProxy("replacing", inPhase(v1alpha1.PhaseReplacing)),
		aProxy("failed", inPhase(v1alpha1.PhaseFailed)),
		aProxy("going", func(p *fleet.Proxy) { p.Deleting = true }),
		aProxy("edited", func(p *fleet.Proxy) { p.Generation = 2 }),
		aProxy("off", withMaxLeases(0)),
		aProxy("elsewhere", withAttr("geo", "us")),
	)
	p := a.refused(`{"selector":{"geo":"eu"}}`)
	assert.Equal(t, noMatchCounts{Considered: 8, Unhealthy: 1, NotReady: 6, Disabled: 1}, p.noMatchCounts)
	assert.Equal(t, "8 proxies match: 1 unhealthy, 6 not ready, 1 disabled by maxLeases 0", p.Detail)
	assert.Equal(t, 30, p.RetryAfterSeconds)
}

func TestAcquireExplainsWhatTheStoreRefuses(t *testing.T) {
	a := newAPI(t)
	cooling, full := aProxy("cooling"), aProxy("full")
	a.fleet.set(cooling)
	g := a.lease(`{"target":"example.com","ttlSeconds":3600}`)
	a.report(g.LeaseID, `{"result":"rate_limited"}`)
	a.delete("/v1/leases/" + g.LeaseID)
	a.clock.Step(1500 * time.Millisecond)
	a.fleet.set(full)
	a.lease(`{"target":"example.com","ttlSeconds":900}`)

	a.fleet.set(cooling, full)
	p := a.refused(`{"target":"EXAMPLE.com."}`)
	assert.Equal(t, noMatchCounts{Considered: 2, AtCapacity: 1, InCooldown: 1}, p.noMatchCounts)
	assert.Equal(t, "2 proxies match: 1 at capacity until 2026-11-01T12:15:01.5Z, 1 in cooldown for example.com until 2026-11-01T12:10:00Z", p.Detail)
	assert.Equal(t, 599, p.RetryAfterSeconds, "598.5 s, rounded up")

	a.clock.Step(time.Duration(p.RetryAfterSeconds-1) * time.Second)
	a.refused(`{"target":"example.com"}`)
	a.clock.Step(time.Second)
	assert.Equal(t, "cooling", a.lease(`{"target":"example.com"}`).Proxy.Name, "who waits as told gets one")
}

func TestAcquireRetryAfter(t *testing.T) {
	a := newAPI(t)
	tests := []struct {
		name    string
		proxies []*fleet.Proxy
		lease   int // seconds for which to lease the first one
		want    int
		detail  string
	}{
		{"none at all", nil, 0, 0, "there is no proxy; GET /v1/proxies lists them"},
		{"all switched off", []*fleet.Proxy{aProxy("a", withMaxLeases(0))}, 0, 0, "1 proxy matches: 1 disabled by maxLeases 0"},
		{"unhealthy", []*fleet.Proxy{aProxy("b", inPhase(v1alpha1.PhaseUnhealthy))}, 0, 30, "1 proxy matches: 1 unhealthy"},
		{"a lease runs", []*fleet.Proxy{aProxy("c"), aProxy("d", withMaxLeases(0))}, 77, 77, ""},
		{"a lease of a second", []*fleet.Proxy{aProxy("e")}, 1, 1, ""},
	}
	for _, tt := range tests {
		a.fleet.set(tt.proxies...)
		if tt.lease > 0 {
			a.lease(fmt.Sprintf(`{"ttlSeconds":%d}`, tt.lease))
		}
		p := a.refused(`{}`)
		assert.Equal(t, tt.want, p.RetryAfterSeconds, tt.name)
		if tt.detail != "" {
			assert.Equal(t, tt.detail, p.Detail)
		}
	}
	p := a.refused(`{"selector":{"geo":"mars"}}`)
	assert.Contains(t, p.Detail, `no proxy has the attributes {"geo":"mars"}`)
	assert.Zero(t, p.RetryAfterSeconds, "waiting does not help")
}

func TestAcquireBelievesNoVerdictOfADeadProber(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	a.clock.Step(25 * time.Hour)
	p := a.refused(`{}`)
	assert.Equal(t, noMatchCounts{Considered: 1, Stale: 1}, p.noMatchCounts)
	assert.Equal(t, "1 proxy matches: 1 with a stale verdict (prober shard 0/1 has not renewed its Lease for 25h0m0s, and verdicts are stale after 24h0m0s: is it running?)", p.Detail)
	assert.Equal(t, 30, p.RetryAfterSeconds)

	a.fleet.renew()
	assert.Contains(t, a.refused(`{}`).Detail, "no prober has ever renewed a Lease")
	a.fleet.renew(fleet.Renewal{Shard: v1alpha1.Shard{Index: 0, Count: 1}, At: a.clock.Now()})
	a.lease(`{}`)
}

func TestAcquireGivesAReplacedInstanceAllItsPlaces(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	old := a.lease(`{}`)
	a.refused(`{}`)
	a.fleet.set(aProxy("a", func(p *fleet.Proxy) { p.ID = "instance-new"; p.Host = "10.0.0.8" }))
	assert.Zero(t, a.list("").Proxies[0].ActiveLeases)
	g := a.lease(`{}`)
	assert.Equal(t, "10.0.0.8", g.Proxy.Host)
	assert.Greater(t, g.FencingToken, old.FencingToken)
	assert.Equal(t, http.StatusNoContent, a.delete("/v1/leases/"+old.LeaseID).status)
	a.refused(`{}`)
}

func TestAHundredClientsGetAHundredProxies(t *testing.T) {
	a := newAPI(t)
	var proxies []*fleet.Proxy
	for i := range 100 {
		proxies = append(proxies, aProxy(fmt.Sprintf("p-%03d", i)))
	}
	a.fleet.set(proxies...)
	var wg sync.WaitGroup
	var got sync.Map
	for range 100 {
		wg.Go(func() {
			res := a.post("/v1/leases", `{}`)
			if !assert.Equal(t, http.StatusCreated, res.status, res.body) {
				return
			}
			var g grantBody
			res.into(&g)
			_, twice := got.LoadOrStore(g.Proxy.Name, true)
			assert.False(t, twice, "%s granted twice", g.Proxy.Name)
		})
	}
	wg.Wait()
	assert.Equal(t, 100, a.refused(`{}`).AtCapacity)
}

// TestAcquireGivesBackWhatNobodyWaitsFor: the client is gone before its
// credentials have been read.
func TestAcquireGivesBackWhatNobodyWaitsFor(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a", withSecret("login")))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	a.secrets.read = blockUntilGone(cancel, ended)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+"/v1/leases", http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+testToken)
	req.Body, req.ContentLength = bodyOf(`{}`)
	_, err = a.client.Do(req)
	require.ErrorIs(t, err, context.Canceled)
	<-ended
	require.Eventually(t, func() bool {
		u, err := a.store.Usage(t.Context())
		return err == nil && u.Total() == 0
	}, 5*time.Second, time.Millisecond)
}
