package api

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
)

// TestLeasingWhileTheFleetChanges has many clients lease, report and release
// while proxies are replaced, fall ill and come back. Hosts name the instance,
// so that a client can see which one it holds.
func TestLeasingWhileTheFleetChanges(t *testing.T) {
	const nClients, rounds, nProxies, maxLeases = 40, 15, 5, 3
	a := newAPI(t)
	a.secrets.read = canary
	version := func(proxy, n int, change ...func(*fleet.Proxy)) *fleet.Proxy {
		p := aProxy(fmt.Sprintf("p-%d", proxy), append(change, withMaxLeases(maxLeases))...)
		p.ID = fmt.Sprintf("instance-%d-%d", proxy, n)
		p.Host = fmt.Sprintf("host-%d-%d", proxy, n)
		if proxy%2 == 0 {
			p.CredentialsSecret = fmt.Sprintf("login-%d", n)
		}
		return p
	}
	var holders sync.Map // by host
	count := func(host string) *atomic.Int64 {
		n, _ := holders.LoadOrStore(host, &atomic.Int64{})
		return n.(*atomic.Int64)
	}
	change := func(n int) {
		var all []*fleet.Proxy
		for i := range nProxies {
			if (i+n)%4 == 0 {
				all = append(all, version(i, n, inPhase(v1alpha1.PhaseUnhealthy)))
				continue
			}
			all = append(all, version(i, n/(i+1)))
		}
		a.fleet.set(all...)
	}
	change(0)

	var wg sync.WaitGroup
	var granted, refused atomic.Int64
	for client := range nClients {
		wg.Go(func() {
			for round := range rounds {
				if client == 0 {
					change(round)
				}
				res := a.post("/v1/leases", fmt.Sprintf(`{"target":"t%d.example"}`, client))
				if res.status == http.StatusConflict {
					refused.Add(1)
					continue
				}
				if !assert.Equal(t, http.StatusCreated, res.status, res.body) {
					return
				}
				granted.Add(1)
				var g grantBody
				res.into(&g)
				n := count(g.Proxy.Host)
				assert.LessOrEqual(t, n.Add(1), int64(maxLeases), "holders of %s", g.Proxy.Host)
				result := []string{"ok", "rate_limited", "banned"}[(client+round)%3]
				assert.Equal(t, http.StatusNoContent, a.report(g.LeaseID, `{"result":"`+result+`"}`).status)
				n.Add(-1)
				assert.Equal(t, http.StatusNoContent, a.delete("/v1/leases/"+g.LeaseID).status)
			}
		})
	}
	wg.Wait()
	assert.Positive(t, granted.Load())
	u, err := a.store.Usage(t.Context())
	require.NoError(t, err)
	assert.Zero(t, u.Total(), "all are released")
	assert.Empty(t, u.CoolingUntil, "reports were about targets")
}
