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
		s.unknown(l.ID)
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
	s.renew(runs[0].ID, 2*time.Hour)
	s.clock.SetTime(runs[1].ExpiresAt) // all but one expire at once
	assert.Equal(t, 1, s.total())
	evicted(next)
	u := s.usage()
	assert.Equal(t, most, u.Expired)
	renewed := s.get(runs[0].ID)
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

func renewal(t *testing.T, s *subject) {
	c := proxy(1, 1)
	l := s.acquire("example.com", c)
	s.clock.Step(30 * time.Second)
	renewed := s.renew(l.ID, 2*time.Minute)
	assert.Equal(t, l.ID, renewed.ID)
	assert.Equal(t, l.FencingToken, renewed.FencingToken)
	assert.Equal(t, "example.com", renewed.Target)
	assert.Equal(t, 2*time.Minute, renewed.TTL)
	assert.True(t, s.clock.Now().Add(2*time.Minute).Equal(renewed.ExpiresAt))

	shorter := s.renew(l.ID, time.Second)
	assert.True(t, renewed.ExpiresAt.Equal(shorter.ExpiresAt), "never shortened")
	got := s.get(l.ID)
	assert.True(t, renewed.ExpiresAt.Equal(got.ExpiresAt))
	assert.Equal(t, l.Instance, got.Instance)

	s.clock.SetTime(renewed.ExpiresAt.Add(-time.Nanosecond))
	assert.True(t, renewed.ExpiresAt.Equal(s.refused("", c).FreeAt()))
	s.clock.SetTime(renewed.ExpiresAt)
	s.acquire("", c)
}

func renewEnded(t *testing.T, s *subject) {
	for _, id := range []string{"no-such-lease", ""} {
		s.unknown(id)
	}
	c := proxy(1, 1)
	old := s.acquire("", c)
	s.clock.SetTime(old.ExpiresAt)
	s.ended(old, lease.EndExpired)
	next := s.acquire("", c)
	s.ended(old, lease.EndExpired)
	assert.Equal(t, 1, s.active(c.Instance), "a late renewal takes no slot")
	s.release(next.ID)
	s.unknown(next.ID)

	s.clock.SetTime(old.ExpiresAt.Add(Window))
	s.unknown(old.ID)
}

// signals checks that waiting goroutines are woken when a slot is freed or the
// fleet changes.
func signals(t *testing.T, s *subject) {
	c := proxy(1, 1)
	freed, changed := s.store.Freed(), s.store.Changed()
	s.fleet(c)
	s.woken("an offer", freed)
	s.woken("an offer", changed)

	before := s.usage().Revision
	changed = s.store.Changed()
	l := s.grant(request(""))
	s.woken("a grant", changed)
	assert.NotEqual(t, before, s.usage().Revision)

	freed, changed = s.store.Freed(), s.store.Changed()
	s.report(l.ID, lease.ResultBanned, "")
	s.woken("a cooldown", changed)
	changed = s.store.Changed()
	s.release(l.ID)
	s.woken("a release", freed)
	s.woken("a release", changed)
}
