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
	s.needsReopen()
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
	renewed := s.renew(held.ID, 2*time.Hour)
	s.fleet(a, b)
	before := s.usage()

	s.reopen()
	after := s.usage()
	assert.Equal(t, before.Active, after.Active)
	require.Len(t, after.CoolingUntil, len(before.CoolingUntil))
	for uid, until := range before.CoolingUntil {
		assert.True(t, until.Equal(after.CoolingUntil[uid]), "%s: %s, not %s", uid, after.CoolingUntil[uid], until)
	}

	got := s.get(held.ID)
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
