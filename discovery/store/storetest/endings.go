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

// expiredLimited has more leases expire than are kept.
func expiredLimited(t *testing.T, s *subject) {
	most := Limits().Expired
	s.fleet(proxy(1, 100))
	grant := func(ttl time.Duration) lease.Lease { return s.grant(lease.Request{TTL: ttl, Target: "example.com"}) }
	var short, runs []lease.Lease
	for i := range most + 3 {
		short = append(short, grant(time.Minute-time.Duration(i)*time.Second)) // the last is the first to expire
		runs = append(runs, grant(time.Hour))
	}
	s.clock.SetTime(short[0].ExpiresAt)
	if s.reopenStore != nil {
		s.reopen()
	}
	kept := func(l lease.Lease) {
		t.Helper()
		s.ended(l, lease.EndExpired)
		s.report(l.ID, lease.ResultOK, "")
	}
	evicted := func(l lease.Lease) {
		t.Helper()
		_, err := s.store.Get(t.Context(), l.ID)
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.ErrorIs(t, s.reportErr(l.ID, lease.ResultBanned, ""), lease.ErrUnknown)
		s.release(l.ID)
	}
	for _, l := range short[most:] {
		evicted(l)
	}
	for _, l := range short[:most] {
		kept(l)
	}
	assert.Equal(t, len(runs), s.total(), "those that run are no part of that")

	s.release(short[2].ID)
	next := grant(time.Second)
	s.clock.SetTime(next.ExpiresAt)
	kept(next)
	kept(short[most-1]) // there was room
	_, err := s.store.Renew(t.Context(), runs[0].ID, 2*time.Hour)
	require.NoError(t, err)
	s.clock.SetTime(runs[1].ExpiresAt) // all but one expire at once
	assert.Equal(t, 1, s.total())
	evicted(next)
	u, err := s.store.Usage(t.Context())
	require.NoError(t, err)
	assert.Equal(t, most, u.Expired)
	renewed, err := s.store.Get(t.Context(), runs[0].ID)
	require.NoError(t, err)
	s.release(renewed.ID)
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
