package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// reopened walks everything that a store has to keep.
func reopened(t *testing.T, s *subject) {
	if s.reopenStore == nil {
		t.Skip("this store keeps nothing")
	}
	a, b := proxy(1, 1), proxy(2, 9)
	s.fleet(a)
	req := withKey("crawler", "key", "body")
	req.Session, req.Target, req.TTL = "session", "example.com", time.Hour
	held := s.grant(req)
	s.fleet(b)
	cooled := s.grant(request("cooled.example"))
	s.report(cooled.ID, lease.ResultBanned, "")
	s.report(cooled.ID, lease.ResultConnectError, "")
	assert.Equal(t, 1, s.refusal(request("")).InCooldown)
	s.clock.Step(Window / 20) // the cooldown for all targets has ended
	released := s.grant(request(""))
	s.release(released.ID)
	short := s.acquire("", proxy(3, 1))
	s.clock.SetTime(short.ExpiresAt)
	s.report(cooled.ID, lease.ResultProxyTimeout, "")
	renewed, err := s.store.Renew(t.Context(), held.ID, 2*time.Hour)
	require.NoError(t, err)
	s.fleet(a, b)
	before, err := s.store.Usage(t.Context())
	require.NoError(t, err)

	s.reopen()
	after, err := s.store.Usage(t.Context())
	require.NoError(t, err)
	assert.Equal(t, before.Active, after.Active)
	assertSameTimes(t, before.CoolingUntil, after.CoolingUntil)

	got, err := s.store.Get(t.Context(), held.ID)
	require.NoError(t, err)
	assertSameLease(t, renewed, got)
	again := s.grant(req)
	assert.True(t, again.Replayed)
	assert.Equal(t, held.ID, again.ID)
	inSession := lease.Request{TTL: time.Minute, Holder: "crawler", Session: "session"}
	assert.Equal(t, 1, s.refusal(inSession).Considered, "the session is still on its full proxy")

	s.ended(short, lease.EndExpired)
	s.report(short.ID, lease.ResultRateLimited, "late.example")
	assert.ErrorIs(t, s.reportErr(released.ID, lease.ResultOK, ""), lease.ErrUnknown, "released is released")
	assert.Equal(t, 1, s.refused("", b).InCooldown)
	s.clock.Step(Window / 20)
	assert.Equal(t, 1, s.refused("cooled.example", b).InCooldown)
	assert.Greater(t, s.acquire("", b).FencingToken, max(renewed.FencingToken, short.FencingToken, released.FencingToken))
}

func assertSameTimes(t *testing.T, want, got map[string]time.Time) {
	t.Helper()
	require.Len(t, got, len(want))
	for k := range want {
		assert.True(t, want[k].Equal(got[k]), "%s: %s, not %s", k, got[k], want[k])
	}
}

func assertSameLease(t *testing.T, want, got lease.Lease) {
	t.Helper()
	assert.True(t, want.ExpiresAt.Equal(got.ExpiresAt))
	assert.True(t, want.GrantedAt.Equal(got.GrantedAt))
	want.ExpiresAt, want.GrantedAt, want.Ended = got.ExpiresAt, got.GrantedAt, got.Ended
	assert.Equal(t, want, got)
}
