package storetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

func grantIsComplete(t *testing.T, s *subject) {
	c := proxy(1, 50)
	ids, lastFence := map[string]bool{}, uint64(0)
	for range 50 {
		l := s.acquire("example.com", c)
		assert.Equal(t, c.Instance, l.Instance)
		assert.Equal(t, c.Proxy, l.Proxy)
		assert.Equal(t, "example.com", l.Target)
		assert.Equal(t, time.Minute, l.TTL)
		assert.True(t, s.clock.Now().Equal(l.GrantedAt), "granted at %s", l.GrantedAt)
		assert.True(t, s.clock.Now().Add(time.Minute).Equal(l.ExpiresAt), "expires at %s", l.ExpiresAt)
		assert.False(t, l.Replayed)
		assert.Greater(t, l.FencingToken, lastFence)
		assert.GreaterOrEqual(t, len(l.ID), 22, "128 bits take 22 characters even in base64")
		assert.Regexp(t, `^[A-Za-z0-9_-]+$`, l.ID, "fits into a URL as it is")
		assert.False(t, ids[l.ID], "an id given twice")
		ids[l.ID], lastFence = true, l.FencingToken
	}
}

func preference(t *testing.T, s *subject) {
	slow, fast, unknown := proxy(1, 9), proxy(2, 9), proxy(0, 9)
	slow.LatencyMillis, fast.LatencyMillis, unknown.LatencyMillis = 80, 5, lease.UnknownLatency
	twin := proxy(3, 9)
	twin.LatencyMillis = fast.LatencyMillis
	var got []string
	for i := range 8 { // the order of the offers does not matter
		all := []*lease.Candidate{slow, fast, unknown, twin}
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		l := s.acquire("", all...)
		if i < 4 {
			got = append(got, l.Proxy)
		}
	}
	assert.Equal(t, []string{fast.Proxy, twin.Proxy, slow.Proxy, unknown.Proxy}, got, "by latency and name while all have as many leases and none had any")
	for _, c := range []*lease.Candidate{slow, fast, unknown, twin} {
		assert.Equal(t, 2, s.active(c.Instance), "fewest leases count before all else")
	}
}

func selectors(t *testing.T, s *subject) {
	with := func(n int, attributes map[string]string) *lease.Offer {
		return &lease.Offer{Candidate: *proxy(n, 9), Attributes: attributes, Leasable: true}
	}
	s.offer(with(0, nil), with(1, map[string]string{"geo": "eu"}), with(2, map[string]string{"geo": "eu", "tier": "gold"}), with(3, map[string]string{"tier": "gold"}))
	tests := []struct {
		selector map[string]string
		want     []int
	}{
		{nil, []int{0, 1, 2, 3}},
		{map[string]string{"geo": "eu"}, []int{1, 2}},
		{map[string]string{"tier": "gold"}, []int{2, 3}},
		{map[string]string{"geo": "eu", "tier": "gold"}, []int{2}},
		{map[string]string{"geo": "us"}, nil},
		{map[string]string{"geo": ""}, nil},
		{map[string]string{"geo": "eu", "tier": "lead"}, nil},
	}
	for range 3 { // the first time, and when the store has seen the selector
		for _, tt := range tests {
			req := request("")
			req.Selector = tt.selector
			if tt.want == nil {
				assert.Zero(t, s.refusal(req))
				continue
			}
			var got []string
			for range tt.want {
				l := s.grant(req)
				got = append(got, l.Proxy)
				defer s.release(l.ID)
			}
			slices.Sort(got)
			got = slices.Compact(got)
			for _, name := range got {
				assert.Contains(t, tt.want, int(name[len(name)-1]-'0'), "%v", tt.selector)
			}
		}
	}
	// A changed attribute counts for selectors that were used before.
	s.offer(with(0, map[string]string{"geo": "eu"}), with(1, map[string]string{"geo": "us"}))
	req := request("")
	req.Selector = map[string]string{"geo": "us"}
	assert.Equal(t, proxy(1, 9).Proxy, s.grant(req).Proxy)
	req.Selector = map[string]string{"geo": "eu"}
	assert.Equal(t, proxy(0, 9).Proxy, s.grant(req).Proxy)
	req.Selector = map[string]string{"tier": "gold"}
	assert.Zero(t, s.refusal(req))
}

func excluded(t *testing.T, s *subject) {
	a, b, c := proxy(1, 9), proxy(2, 9), proxy(3, 9)
	s.fleet(a, b, c)
	req := request("")
	req.Exclude = []string{a.Proxy, c.Proxy, "crawl/none"}
	for range 3 {
		assert.Equal(t, b.Proxy, s.grant(req).Proxy)
	}
	req.Exclude = append(req.Exclude, b.Proxy)
	assert.Zero(t, s.refusal(req), "what is excluded is not considered")
	assert.Equal(t, a.Proxy, s.grant(request("")).Proxy, "and another request may have it")
}

func otherSchemes(t *testing.T, s *subject) {
	plain, tls := proxy(1, 9), proxy(2, 9)
	tls.Scheme = "https"
	s.fleet(plain, tls)
	only := func(schemes ...string) lease.Request {
		req := inSession("")
		req.Schemes = schemes
		return req
	}
	for range 3 { // the first time, and when the store has seen the request
		assert.Equal(t, plain.Proxy, s.grant(only("http")).Proxy)
		assert.Equal(t, tls.Proxy, s.grant(only("https")).Proxy)
		assert.Zero(t, s.refusal(only("socks5")), "what is of another scheme is not considered")
	}
	both := map[string]bool{s.grant(only("http", "https")).Proxy: true, s.grant(only("http", "https")).Proxy: true}
	assert.Len(t, both, 2)

	inS := only("https")
	inS.Session = "s"
	assert.Equal(t, tls.Proxy, s.grant(inS).Proxy)
	inS.Schemes = []string{"http"}
	assert.Equal(t, plain.Proxy, s.grant(inS).Proxy, "a session moves when its proxy cannot be spoken to")
	inS.Schemes = nil
	assert.Equal(t, plain.Proxy, s.grant(inS).Proxy, "and stays there")

	edited := proxy(2, 9)
	s.fleet(plain, edited)
	assert.Zero(t, s.refusal(only("https")), "a changed scheme counts for requests that were seen before")
}

func noFleet(t *testing.T, s *subject) {
	assert.Zero(t, s.refusal(request("")))
	s.store.Offer(lease.Offers{})
	assert.Zero(t, s.refusal(request("")))
}

func notLeasable(t *testing.T, s *subject) {
	off, on := &lease.Offer{Candidate: *proxy(1, 9)}, &lease.Offer{Candidate: *proxy(2, 9), Leasable: true}
	s.offer(off, on)
	for range 3 {
		assert.Equal(t, on.Proxy, s.grant(request("")).Proxy)
	}
	s.offer(off)
	assert.Zero(t, s.refusal(request("")))
}

func offersTakeEffect(t *testing.T, s *subject) {
	a, b := proxy(1, 9), proxy(2, 9)
	l := s.acquire("", a)
	require.Equal(t, b.Proxy, s.acquire("", a, b).Proxy)
	s.fleet(a)
	require.Equal(t, a.Proxy, s.grant(request("")).Proxy, "b is no longer leasable")
	s.release(l.ID)
	fast := proxy(2, 9)
	fast.LatencyMillis = 1
	s.fleet(a, fast)
	require.Equal(t, b.Proxy, s.grant(request("")).Proxy, "as many leases, and granted longer ago")
	s.gone(b.ProxyUID)
	for range 5 {
		require.Equal(t, a.Proxy, s.grant(request("")).Proxy, "b does not exist")
	}
	one := proxy(1, 1)
	require.Equal(t, 1, s.refused("", one).AtCapacity)
	more := proxy(1, 100)
	s.acquire("", more)
}

func deadContext(t *testing.T, s *subject) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := proxy(1, 1)
	s.fleet(c)
	_, err := s.store.Acquire(ctx, request(""))
	assert.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, s.active(c.Instance))

	l := s.acquire("", c)
	assert.ErrorIs(t, s.store.Report(ctx, l.ID, lease.Report{Result: lease.ResultBanned}), context.Canceled)
	assert.ErrorIs(t, s.store.Release(ctx, l.ID), context.Canceled)
	_, err = s.store.Renew(ctx, l.ID, time.Hour)
	assert.ErrorIs(t, err, context.Canceled)
	_, err = s.store.Get(ctx, l.ID)
	assert.ErrorIs(t, err, context.Canceled)
	_, err = s.store.Usage(ctx)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 1, s.active(c.Instance), "and changes nothing")
	assert.Equal(t, 1, s.refused("", c).AtCapacity)
}
