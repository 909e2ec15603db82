package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

func inSession(session string) lease.Request {
	return lease.Request{TTL: time.Minute, Session: session, Holder: "crawler"}
}

func sessionsStick(t *testing.T, s *subject) {
	s.fleet(proxies(10, 2)...)
	first := s.grant(inSession("a"))
	assert.Equal(t, "a", first.Session)
	assert.Equal(t, "crawler", first.Holder)
	second := s.grant(inSession("a"))
	assert.Equal(t, first.Proxy, second.Proxy)
	assert.NotEqual(t, first.ID, second.ID)

	stats := s.refusal(inSession("a"))
	assert.Equal(t, 1, stats.Considered, "a full proxy is waited for, nine free ones or not")
	assert.Equal(t, 1, stats.AtCapacity)
	assert.True(t, first.ExpiresAt.Equal(stats.FreeAt()))

	assert.NotEqual(t, first.Proxy, s.grant(inSession("b")).Proxy)
	stranger := inSession("a")
	stranger.Holder = "another"
	assert.NotEqual(t, first.Proxy, s.grant(stranger).Proxy, "another's session of that name is another session")

	s.release(first.ID)
	s.release(second.ID)
	for range 5 {
		l := s.grant(inSession("a"))
		assert.Equal(t, first.Proxy, l.Proxy, "also between leases")
		s.release(l.ID)
	}
}

func sessionsMove(t *testing.T, s *subject) {
	a, b := proxy(1, 9), proxy(2, 9)
	start := func() lease.Lease {
		s.fleet(a)
		l := s.grant(inSession("s"))
		require.Equal(t, a.Proxy, l.Proxy)
		s.fleet(a, b)
		require.Equal(t, a.Proxy, s.grant(inSession("s")).Proxy)
		return l
	}
	moves := func(why string, req lease.Request) {
		t.Helper()
		assert.Equal(t, b.Proxy, s.grant(req).Proxy, why)
		s.fleet(a, b)
		assert.Equal(t, b.Proxy, s.grant(inSession("s")).Proxy, "and stays there")
		s.clock.Step(24 * time.Hour)
	}
	start()
	s.fleet(b)
	moves("not leasable", inSession("s"))

	start()
	req := inSession("s")
	req.Exclude = []string{a.Proxy}
	moves("excluded", req)

	l := start()
	s.report(l.ID, lease.ResultBanned, "example.com")
	s.grant(inSession("s"))
	req = inSession("s")
	req.Target = "example.com"
	moves("cooling", req)

	start()
	replaced := *a
	replaced.ID = "instance-new"
	twin := *b
	s.fleet(&replaced, &twin)
	s.grant(lease.Request{TTL: time.Minute, Exclude: []string{b.Proxy}}) // makes the new instance the fuller one
	moves("replaced", inSession("s"))

	start()
	s.gone(a.ProxyUID)
	moves("deleted", inSession("s"))

	s.fleet(a)
	s.grant(inSession("s"))
	s.offer(&lease.Offer{Candidate: *a, Leasable: true}, &lease.Offer{Candidate: *b, Leasable: true, Attributes: map[string]string{"geo": "eu"}})
	req = inSession("s")
	req.Selector = map[string]string{"geo": "eu"}
	assert.Equal(t, b.Proxy, s.grant(req).Proxy, "does not match")
}

func sessionsEnd(t *testing.T, s *subject) {
	a, b := proxy(1, 9), proxy(2, 9)
	s.fleet(b)
	l := s.grant(inSession("s"))
	s.fleet(a, b)
	renewed := s.renew(l.ID, time.Hour)
	s.clock.SetTime(renewed.ExpiresAt.Add(lease.SessionIdle - time.Second))
	l = s.grant(inSession("s"))
	assert.Equal(t, b.Proxy, l.Proxy, "kept")
	s.clock.SetTime(l.ExpiresAt.Add(lease.SessionIdle))
	assert.Equal(t, a.Proxy, s.grant(inSession("s")).Proxy, "ended")
}

func withKey(holder, key, fingerprint string) lease.Request {
	return lease.Request{TTL: time.Minute, Holder: holder, Key: key, Fingerprint: fingerprint}
}

func repeatedRequest(t *testing.T, s *subject) {
	c := proxy(1, 9)
	s.fleet(c)
	first := s.grant(withKey("x", "k", "body"))
	s.clock.Step(time.Second)
	again := s.grant(withKey("x", "k", "body"))
	assert.True(t, again.Replayed)
	assert.Equal(t, first.ID, again.ID)
	assert.Equal(t, first.FencingToken, again.FencingToken)
	assert.True(t, first.ExpiresAt.Equal(again.ExpiresAt))
	assert.Equal(t, 1, s.active(c.Instance))

	_, err := s.store.Acquire(t.Context(), withKey("x", "k", "other body"))
	assert.ErrorIs(t, err, lease.ErrKeyReused)
	assert.Equal(t, 1, s.active(c.Instance))

	s.fleet() // nothing to lease, and yet
	assert.Equal(t, first.ID, s.grant(withKey("x", "k", "body")).ID)
	s.fleet(c)

	s.clock.SetTime(first.ExpiresAt)
	next := s.grant(withKey("x", "k", "other body"))
	assert.False(t, next.Replayed)
	assert.NotEqual(t, first.ID, next.ID, "the lease has expired, and its key is free")
	s.clock.SetTime(first.ExpiresAt.Add(Window)) // the first is dropped, not the second
	_, err = s.store.Renew(t.Context(), next.ID, time.Minute)
	require.ErrorAs(t, err, new(*lease.EndedError))

	next = s.grant(withKey("x", "k", "body"))
	s.release(next.ID)
	assert.NotEqual(t, next.ID, s.grant(withKey("x", "k", "body")).ID, "a released lease does not come back")
}

func keyOwners(t *testing.T, s *subject) {
	old := proxy(1, 9)
	s.fleet(old)
	first := s.grant(withKey("x", "k", "body"))
	assert.NotEqual(t, first.ID, s.grant(withKey("y", "k", "other")).ID)
	assert.NotEqual(t, first.ID, s.grant(withKey("x", "l", "other")).ID)
	keyless := s.grant(withKey("x", "", "body"))
	assert.NotEqual(t, keyless.ID, s.grant(withKey("x", "", "body")).ID, "no key")

	replaced := proxy(1, 9)
	replaced.ID = "instance-new"
	s.fleet(replaced)
	l := s.grant(withKey("x", "k", "body"))
	assert.False(t, l.Replayed, "a lease that leads nowhere is not handed out again")
	assert.Equal(t, "instance-new", l.Instance.ID)
}
