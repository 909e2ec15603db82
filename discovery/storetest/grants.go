package storetest

import (
	"context"
	"math/rand/v2"
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
		assert.True(t, s.clock.Now().Add(time.Minute).Equal(l.ExpiresAt), "expires at %s", l.ExpiresAt)
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
	for i := range 8 {
		all := []*lease.Candidate{slow, fast, unknown, twin}
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		l := s.acquire("", all...)
		if i < 4 {
			got = append(got, l.Proxy)
		}
	}
	assert.Equal(t, []string{fast.Proxy, twin.Proxy, slow.Proxy, unknown.Proxy}, got, "by latency and name while all have as many leases")
	for _, c := range []*lease.Candidate{slow, fast, unknown, twin} {
		assert.Equal(t, 2, s.active(c.Instance), "fewest leases count before latency")
	}
}

func fairness(t *testing.T, s *subject) {
	fleet := proxies(50, 100_000)
	for range 10_000 {
		s.acquire("", fleet...)
	}
	for _, c := range fleet {
		require.Equal(t, 200, s.active(c.Instance))
	}
}

func capacity(t *testing.T, s *subject) {
	a, b := proxy(1, 2), proxy(2, 1)
	for range 3 {
		s.acquire("", a, b)
	}
	stats := s.refused("", a, b)
	assert.Equal(t, 2, stats.AtCapacity)
	assert.Equal(t, 2, s.active(a.Instance))
	assert.Equal(t, 1, s.active(b.Instance))
	assert.True(t, s.clock.Now().Add(time.Minute).Equal(stats.FreeAt()))
}

func zeroCapacity(t *testing.T, s *subject) {
	off := proxy(1, 0)
	stats := s.refused("", off)
	assert.Equal(t, 1, stats.AtCapacity)
	assert.True(t, stats.FreeAt().IsZero(), "waiting does not help")
	l := s.acquire("", off, proxy(2, 1))
	assert.Equal(t, "crawl/proxy-002", l.Proxy)

	negative := proxy(3, -1)
	s.refused("", negative)
}

func loweredCapacity(t *testing.T, s *subject) {
	c := proxy(1, 3)
	var ends []time.Time
	for range 3 {
		ends = append(ends, s.acquire("", c).ExpiresAt)
		s.clock.Step(10 * time.Second)
	}
	lowered := proxy(1, 2)
	stats := s.refused("", lowered)
	assert.True(t, ends[1].Equal(stats.FreeAt()), "two of three must expire before one more fits: %s", stats.FreeAt())
	s.clock.SetTime(ends[0])
	s.refused("", lowered)
	s.clock.SetTime(ends[1])
	s.acquire("", lowered)
}

func noCandidates(t *testing.T, s *subject) {
	stats := s.refused("example.com")
	assert.Zero(t, stats)
	assert.True(t, stats.FreeAt().IsZero())
}

func replacedInstance(t *testing.T, s *subject) {
	old, replaced := proxy(1, 1), proxy(1, 1)
	replaced.ID = "instance-new"
	first := s.acquire("", old)
	assert.Equal(t, 0, s.active(replaced.Instance))
	second := s.acquire("", replaced)
	s.release(first.ID)
	s.refused("", replaced)
	assert.Equal(t, 1, s.active(replaced.Instance), "the old instance's release is not the new one's")

	s.report(second.ID, lease.ResultBanned, "")
	s.release(second.ID)
	assert.Equal(t, 1, s.refused("", old).InCooldown, "cooldowns belong to the Proxy, whatever its instance")
}

func identity(t *testing.T, s *subject) {
	before, after := proxy(1, 1), proxy(2, 1)
	after.Proxy = before.Proxy
	l := s.acquire("", before)
	s.report(l.ID, lease.ResultBanned, "")
	again := s.acquire("", after)
	assert.Equal(t, after.Instance, again.Instance, "a Proxy re-created under its old name starts afresh")
}

func deadContext(t *testing.T, s *subject) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := proxy(1, 1)
	_, err := s.store.Acquire(ctx, request("", c))
	assert.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, s.active(c.Instance))

	l := s.acquire("", c)
	assert.ErrorIs(t, s.store.Report(ctx, l.ID, lease.Report{Result: lease.ResultBanned}), context.Canceled)
	assert.ErrorIs(t, s.store.Release(ctx, l.ID), context.Canceled)
	_, err = s.store.Usage(ctx)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 1, s.active(c.Instance), "and changes nothing")
	assert.Equal(t, 1, s.refused("", c).AtCapacity)
}
