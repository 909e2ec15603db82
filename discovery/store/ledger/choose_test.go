package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

func ends(p *proxy, after ...time.Duration) *proxy {
	for _, d := range after {
		p.add(&activeLease{Record: Record{Lease: lease.Lease{ExpiresAt: start.Add(d)}}})
	}
	return p
}

func proxyWith(maxLeases int) *proxy {
	return &proxy{room: maxLeases, Offer: &lease.Offer{Leasable: true, Candidate: lease.Candidate{MaxLeases: maxLeases}}}
}

func TestRoomAtWaitsForEnoughExpiries(t *testing.T) {
	tests := map[string]struct {
		proxy *proxy
		want  time.Duration // 0: zero time
	}{
		"free slot":                    {ends(proxyWith(3), 5, 4), 0},
		"full":                         {ends(proxyWith(3), 5, 4, 6), 4},
		"lowered by one":               {ends(proxyWith(2), 5, 4, 6), 5},
		"lowered by two":               {ends(proxyWith(1), 5, 4, 6), 6},
		"leasing is disabled":          {ends(proxyWith(0), 5), 0},
		"negative maxLeases":           {ends(proxyWith(-1), 5), 0},
		"two that expire at one time":  {ends(proxyWith(1), 5, 5), 5},
		"the first of many, unordered": {ends(proxyWith(5), 9, 8, 7, 6, 5), 5},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := time.Time{}
			if tt.want > 0 {
				want = start.Add(tt.want)
			}
			assert.Equal(t, want, tt.proxy.roomAt())
		})
	}
}

func TestExplainCountsEachProxyOnce(t *testing.T) {
	cooling := func(p *proxy, until map[string]time.Duration) *proxy {
		p.cooldowns = map[string]*cooldown{}
		for target, d := range until {
			p.cooldowns[target] = &cooldown{deadline: deadline{at: start.Add(d)}}
		}
		return p
	}
	full := ends(proxyWith(1), 40)
	both := cooling(ends(proxyWith(1), 30), map[string]time.Duration{"a": 20})
	twice := cooling(proxyWith(1), map[string]time.Duration{"": 10, "a": 15})
	disabled := cooling(proxyWith(0), map[string]time.Duration{"a": 5})
	req := lease.Request{Target: "a"}
	assert.Equal(t, lease.Stats{Considered: 1, AtCapacity: 1, CapacityFreeAt: start.Add(40)}, explain(req, full))
	assert.Equal(t, lease.Stats{Considered: 1, InCooldown: 1, CooldownEndsAt: start.Add(30)}, explain(req, both), "the later of both")
	assert.Equal(t, lease.Stats{Considered: 1, InCooldown: 1, CooldownEndsAt: start.Add(15)}, explain(req, twice))
	assert.Equal(t, lease.Stats{Considered: 1, InCooldown: 1}, explain(req, disabled), "never free by itself")
	all := explain(req, full, both, twice, disabled)
	assert.Equal(t, lease.Stats{Considered: 4, AtCapacity: 1, InCooldown: 3, CapacityFreeAt: start.Add(40), CooldownEndsAt: start.Add(15)}, all)
	assert.Equal(t, start.Add(15), all.FreeAt())
}

func TestExcludedProxiesAreSkippedWithAndWithoutAView(t *testing.T) {
	g, _ := small(4)
	var exclude []string
	for i := range 3 {
		exclude = append(exclude, testOffer(i).Proxy)
	}
	req := lease.Request{TTL: time.Minute, Exclude: exclude}
	for round := range 3 { // the first round scans, the second one builds a view
		require.Len(t, g.index.views, max(0, round-1))
		l, err := g.Acquire(start, req)
		require.NoError(t, err)
		assert.Equal(t, testOffer(3).Proxy, l.Proxy)
		g.Release(start, l.ID)
	}
	req.Exclude = append(req.Exclude, testOffer(3).Proxy)
	_, err := g.Acquire(start, req)
	var none *lease.NoMatchError
	require.ErrorAs(t, err, &none)
	assert.Zero(t, none.Stats)
	assert.Empty(t, g.stats.byRequest, "stats of such requests are not cached")
}
