package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

func expiry(t *testing.T, s *subject) {
	c := proxy(1, 1)
	l := s.acquire("", c)
	s.clock.SetTime(l.ExpiresAt.Add(-time.Microsecond))
	assert.Equal(t, 1, s.active(c.Instance), "a TTL is not cut short")
	s.refused("", c)
	s.clock.SetTime(l.ExpiresAt)
	assert.Zero(t, s.active(c.Instance))
	assert.Zero(t, s.total())
	s.acquire("", c)
}

func lateReport(t *testing.T, s *subject) {
	c := proxy(1, 1)
	l := s.acquire("example.com", c)
	s.clock.SetTime(l.ExpiresAt.Add(Window - time.Microsecond))
	s.report(l.ID, lease.ResultRateLimited, "")
	stats := s.refused("example.com", c)
	assert.Equal(t, 1, stats.InCooldown)
	assert.True(t, s.clock.Now().Add(Window).Equal(stats.FreeAt()), "a late report cools for the whole window")

	s.clock.Step(time.Microsecond)
	assert.ErrorIs(t, s.reportErr(l.ID, lease.ResultOK, ""), lease.ErrUnknown)
	assert.ErrorIs(t, s.reportErr("no-such-lease", lease.ResultOK, ""), lease.ErrUnknown)
	assert.ErrorIs(t, s.reportErr("", lease.ResultBanned, ""), lease.ErrUnknown)
}

func releaseTwice(t *testing.T, s *subject) {
	c := proxy(1, 2)
	first, second := s.acquire("", c), s.acquire("", c)
	s.release(first.ID)
	s.release(first.ID)
	s.release("no-such-lease")
	s.release("")
	assert.Equal(t, 1, s.active(c.Instance), "one release frees one place")
	assert.ErrorIs(t, s.reportErr(first.ID, lease.ResultBanned, ""), lease.ErrUnknown, "a released lease is gone")
	s.acquire("", c)
	s.refused("", c)
	s.report(second.ID, lease.ResultOK, "")
}

func successor(t *testing.T, s *subject) {
	c := proxy(1, 1)
	old := s.acquire("example.com", c)
	s.clock.SetTime(old.ExpiresAt)
	next := s.acquire("example.com", c)
	require.NotEqual(t, old.ID, next.ID)
	require.Greater(t, next.FencingToken, old.FencingToken)

	s.report(old.ID, lease.ResultBanned, "")
	assert.Equal(t, 1, s.active(c.Instance), "a late report ends no lease")
	s.release(old.ID)
	s.release(old.ID)
	assert.Equal(t, 1, s.active(c.Instance), "a late release ends no lease but its own")
	s.refused("other.example", c)
	s.report(next.ID, lease.ResultOK, "")
	s.release(next.ID)
	assert.Zero(t, s.active(c.Instance))
}
