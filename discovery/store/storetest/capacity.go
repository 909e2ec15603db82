package storetest

import (
	"testing"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"github.com/stretchr/testify/assert"
)

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
	assert.Equal(t, 1, s.refused("", old).InCooldown, "cooldowns belong to the Proxy, not to its instance")
}

func instanceGone(t *testing.T, s *subject) {
	at := func(n int, id string) *lease.Offer {
		c := *proxy(n, 1)
		c.ID = id
		return &lease.Offer{Candidate: c, Leasable: id != ""}
	}
	s.offer(at(1, "old"))
	l := s.grant(request("example.com"))
	got := s.get(l.ID)
	assert.Equal(t, "old", got.Instance.ID)

	s.offer(at(1, ""))
	s.ended(l, lease.EndGone)
	s.offer(at(1, "new"))
	s.ended(l, lease.EndReplaced)
	next := s.grant(request(""))
	assert.Equal(t, "new", next.Instance.ID, "the old lease's place is not the new instance's")
	s.renew(next.ID, time.Minute)

	s.offer(&lease.Offer{Candidate: at(1, "new").Candidate})
	s.renew(next.ID, time.Minute) // an unhealthy instance is still the instance

	s.gone(l.Instance.ProxyUID)
	s.ended(l, lease.EndDeleted)
	s.ended(next, lease.EndDeleted)
	s.report(next.ID, lease.ResultBanned, "")
	s.release(next.ID)
	s.unknown(next.ID)
}

func identity(t *testing.T, s *subject) {
	before, after := proxy(1, 1), proxy(2, 1)
	after.Proxy = before.Proxy
	l := s.acquire("", before)
	s.report(l.ID, lease.ResultBanned, "")
	again := s.acquire("", after)
	assert.Equal(t, after.Instance, again.Instance, "a Proxy re-created under its old name starts afresh")
}
