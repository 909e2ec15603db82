package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

func renewal(t *testing.T, s *subject) {
	c := proxy(1, 1)
	l := s.acquire("example.com", c)
	s.clock.Step(30 * time.Second)
	renewed, err := s.store.Renew(t.Context(), l.ID, 2*time.Minute)
	require.NoError(t, err)
	assert.Equal(t, l.ID, renewed.ID)
	assert.Equal(t, l.FencingToken, renewed.FencingToken)
	assert.Equal(t, "example.com", renewed.Target)
	assert.Equal(t, 2*time.Minute, renewed.TTL)
	assert.True(t, s.clock.Now().Add(2*time.Minute).Equal(renewed.ExpiresAt))

	shorter, err := s.store.Renew(t.Context(), l.ID, time.Second)
	require.NoError(t, err)
	assert.True(t, renewed.ExpiresAt.Equal(shorter.ExpiresAt), "never shortened")
	got, err := s.store.Get(t.Context(), l.ID)
	require.NoError(t, err)
	assert.True(t, renewed.ExpiresAt.Equal(got.ExpiresAt))
	assert.Equal(t, l.Instance, got.Instance)

	s.clock.SetTime(renewed.ExpiresAt.Add(-time.Nanosecond))
	assert.True(t, renewed.ExpiresAt.Equal(s.refused("", c).FreeAt()))
	s.clock.SetTime(renewed.ExpiresAt)
	s.acquire("", c)
}

func renewEnded(t *testing.T, s *subject) {
	for _, id := range []string{"no-such-lease", ""} {
		_, err := s.store.Renew(t.Context(), id, time.Minute)
		assert.ErrorIs(t, err, lease.ErrUnknown)
		_, err = s.store.Get(t.Context(), id)
		assert.ErrorIs(t, err, lease.ErrUnknown)
	}
	c := proxy(1, 1)
	old := s.acquire("", c)
	s.clock.SetTime(old.ExpiresAt)
	s.ended(old, lease.EndExpired)
	next := s.acquire("", c)
	s.ended(old, lease.EndExpired)
	assert.Equal(t, 1, s.active(c.Instance), "a late renewal takes no slot")
	s.release(next.ID)
	_, err := s.store.Renew(t.Context(), next.ID, time.Minute)
	assert.ErrorIs(t, err, lease.ErrUnknown, "a released lease is gone")

	s.clock.SetTime(old.ExpiresAt.Add(Window))
	_, err = s.store.Get(t.Context(), old.ID)
	assert.ErrorIs(t, err, lease.ErrUnknown)
}

// signals checks that waiting goroutines are woken when a slot is freed or the
// fleet changes.
func signals(t *testing.T, s *subject) {
	woken := func(what string, c <-chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s wakes no waiter", what)
		}
	}
	c := proxy(1, 1)
	freed, changed := s.store.Freed(), s.store.Changed()
	s.fleet(c)
	woken("an offer", freed)
	woken("an offer", changed)

	before := s.revision()
	changed = s.store.Changed()
	l := s.grant(request(""))
	woken("a grant", changed)
	assert.NotEqual(t, before, s.revision())

	freed, changed = s.store.Freed(), s.store.Changed()
	s.report(l.ID, lease.ResultBanned, "")
	woken("a cooldown", changed)
	changed = s.store.Changed()
	s.release(l.ID)
	woken("a release", freed)
	woken("a release", changed)
}

func (s *subject) revision() uint64 {
	s.Helper()
	u, err := s.store.Usage(s.Context())
	require.NoError(s, err)
	return u.Revision
}
