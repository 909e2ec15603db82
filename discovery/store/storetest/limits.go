package storetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// full wants a LimitError with this limit and time.
func (s *subject) full(err error, limit lease.Limit, freeAt time.Time) {
	s.Helper()
	limits := Limits()
	most := map[lease.Limit]int{
		lease.LimitSessions: limits.Sessions, lease.LimitTargetsPerProxy: limits.TargetsPerProxy, lease.LimitTargets: limits.Targets,
	}[limit]
	assertSameRefusal(s.T, &lease.LimitError{Limit: limit, Most: most, FreeAt: freeAt}, err, "refused")
}

// accepted counts the calls of n parallel clients that no limit refuses.
func (s *subject) accepted(n int, call func(i int) error) int {
	var accepted atomic.Int64
	clients(n, func(i int) {
		if err := call(i); !isFull(err) {
			assert.NoError(s, err)
			accepted.Add(1)
		}
	})
	return int(accepted.Load())
}

func (s *subject) sessionErr(holder, session string) error {
	_, err := s.store.Acquire(context.Background(), lease.Request{TTL: time.Hour, Holder: holder, Session: session})
	return err
}

func (s *subject) sessionsFull(freeAt time.Time) {
	s.Helper()
	s.full(s.sessionErr("crawler", "one more"), lease.LimitSessions, freeAt)
}

// sessionsEndEarly observes the end of sessions through their limit.
func sessionsEndEarly(t *testing.T, s *subject) {
	s.fleet(proxy(1, 100))
	grant := func(session string, ttl time.Duration) lease.Lease {
		req := inSession(session)
		req.TTL = ttl
		return s.grant(req)
	}
	for i := range Limits().Sessions - 1 {
		grant(fmt.Sprint(i), 24*time.Hour)
	}
	long, short := grant("s", time.Hour), grant("s", 10*time.Minute)
	s.sessionsFull(long.ExpiresAt.Add(lease.SessionIdle))
	s.release(long.ID)
	s.sessionsFull(short.ExpiresAt.Add(lease.SessionIdle))
	s.release(long.ID)
	s.clock.Step(time.Minute)
	s.release(short.ID)
	end := s.clock.Now().Add(lease.SessionIdle)
	s.sessionsFull(end)

	next := grant("s", time.Hour)
	s.sessionsFull(next.ExpiresAt.Add(lease.SessionIdle))
	renewed := s.renew(next.ID, 2*time.Hour)
	s.sessionsFull(renewed.ExpiresAt.Add(lease.SessionIdle))
	s.release(next.ID)
	s.sessionsFull(end)
	s.clock.SetTime(end)
	require.NoError(t, s.sessionErr("crawler", "another"))

	expired := s.grant(lease.Request{TTL: time.Minute, Session: "s"})
	s.clock.SetTime(expired.ExpiresAt.Add(lease.SessionIdle - time.Second))
	s.release(expired.ID) // shortens no ended session
	assert.Equal(t, 1, s.sessionCount(), "of another holder")
}

// sessionCount is how many new sessions the holder "" can have no more.
func (s *subject) sessionCount() int {
	s.Helper()
	return Limits().Sessions - s.accepted(Limits().Sessions+1, func(i int) error { return s.sessionErr("", fmt.Sprint("count ", i)) })
}

func sessionsLimited(t *testing.T, s *subject) {
	s.fleet(proxy(1, 100))
	first := s.grant(inSession("0"))
	for i := range Limits().Sessions {
		s.clock.Step(time.Second)
		require.NoError(t, s.sessionErr("crawler", fmt.Sprint(i)))
	}
	s.sessionsFull(s.clock.Now().Add(time.Hour + lease.SessionIdle - 5*time.Second))
	before := s.total()
	s.sessionsFull(s.clock.Now().Add(time.Hour + lease.SessionIdle - 5*time.Second))
	assert.Equal(t, before, s.total(), "nothing is granted")
	require.NoError(t, s.sessionErr("crawler", "3"), "those that are there go on")
	require.NoError(t, s.sessionErr("crawler", ""), "none is needed")
	require.NoError(t, s.sessionErr("another", "one more"), "others have their own")
	s.fleet(proxy(1, 0))
	s.full(s.sessionErr("crawler", "one more"), lease.LimitSessions, first.GrantedAt.Add(time.Second+time.Hour+lease.SessionIdle))
	s.fleet(proxy(1, 100))
	s.clock.SetTime(first.GrantedAt.Add(time.Second + time.Hour + lease.SessionIdle))
	require.NoError(t, s.sessionErr("crawler", "one more"), "at FreeAt")
	s.full(s.sessionErr("crawler", "two more"), lease.LimitSessions, s.clock.Now().Add(time.Second))
}

func parallelSessions(t *testing.T, s *subject) {
	s.fleet(proxies(8, 100)...)
	assert.Equal(t, Limits().Sessions, s.accepted(192, func(i int) error { return s.sessionErr("crawler", fmt.Sprint(i)) }))
	assert.Equal(t, Limits().Sessions, s.total())
}

func targetsLimited(t *testing.T, s *subject) {
	c := proxy(1, 100)
	l := s.acquire("", c)
	first := s.clock.Now()
	for i := range Limits().TargetsPerProxy {
		s.report(l.ID, lease.ResultBanned, fmt.Sprint(i, ".example"))
		s.clock.Step(time.Second)
	}
	s.full(s.reportErr(l.ID, lease.ResultBanned, "one-more.example"), lease.LimitTargetsPerProxy, first.Add(Window))
	s.acquire("one-more.example", c)
	for i := range Limits().TargetsPerProxy {
		assert.Equal(t, 1, s.refused(fmt.Sprint(i, ".example"), c).InCooldown, "none gives way")
	}
	s.report(l.ID, lease.ResultOK, "one-more.example")
	s.report(l.ID, lease.ResultTargetTimeout, "one-more.example")
	s.report(l.ID, lease.ResultBanned, "0.example") // prolongs
	s.full(s.reportErr(l.ID, lease.ResultCaptcha, "one-more.example"), lease.LimitTargetsPerProxy, first.Add(Window+time.Second))
	s.report(s.acquire("", proxy(2, 1)).ID, lease.ResultBanned, "one-more.example") // another proxy has its own

	s.clock.SetTime(first.Add(Window + time.Second))
	l = s.acquire("", c)
	s.report(l.ID, lease.ResultBanned, "one-more.example")
	assert.Equal(t, 1, s.refused("one-more.example", c).InCooldown, "at FreeAt")
	s.report(l.ID, lease.ResultConnectError, "any.example")
	assert.Equal(t, 1, s.refused("", c).InCooldown, "a cooldown for all targets has no limit")
}

func allTargetsLimited(t *testing.T, s *subject) {
	first := s.clock.Now()
	for i := range Limits().Targets {
		l := s.acquire("", proxy(i/2, 100))
		s.report(l.ID, lease.ResultBanned, fmt.Sprint(i%2, ".example"))
		s.clock.Step(time.Second)
	}
	fresh := proxy(100, 9)
	l := s.acquire("", fresh)
	s.full(s.reportErr(l.ID, lease.ResultBanned, "0.example"), lease.LimitTargets, first.Add(Window))
	s.full(s.reportErr(s.acquire("2.example", proxy(0, 100)).ID, lease.ResultBanned, ""), lease.LimitTargets, first.Add(Window))
	s.report(l.ID, lease.ResultProxyTimeout, "0.example")
	assert.Equal(t, 1, s.refused("", fresh).InCooldown)
	s.clock.SetTime(first.Add(Window))
	s.report(s.acquire("", fresh).ID, lease.ResultBanned, "0.example")
	assert.Equal(t, 1, s.refused("0.example", fresh).InCooldown)
}

func parallelTargets(t *testing.T, s *subject) {
	c := proxy(1, 100)
	l := s.acquire("", c)
	taken := s.accepted(64, func(i int) error { return s.reportErr(l.ID, lease.ResultBanned, fmt.Sprint(i, ".example")) })
	assert.Equal(t, Limits().TargetsPerProxy, taken)
	cooling := 0
	for i := range 64 {
		if _, err := s.store.Acquire(t.Context(), request(fmt.Sprint(i, ".example"))); isNoMatch(err) {
			cooling++
		}
	}
	assert.Equal(t, Limits().TargetsPerProxy, cooling, "those that were taken, and no others")
}

func limitsReopened(t *testing.T, s *subject) {
	s.needsReopen()
	c := proxy(1, 100)
	l := s.acquire("", c)
	for i := range Limits().TargetsPerProxy {
		s.report(l.ID, lease.ResultBanned, fmt.Sprint(i, ".example"))
	}
	rests := s.clock.Now().Add(Window)
	for i := range Limits().Sessions {
		require.NoError(t, s.sessionErr("crawler", fmt.Sprint(i)))
	}
	early := s.grant(inSession("0"))
	s.release(early.ID)
	s.reopen()
	s.full(s.reportErr(l.ID, lease.ResultBanned, "one-more.example"), lease.LimitTargetsPerProxy, rests)
	s.sessionsFull(s.clock.Now().Add(time.Hour + lease.SessionIdle))
	again := s.grant(inSession("0"))
	s.clock.SetTime(again.ExpiresAt)
	s.reopen()
	s.clock.SetTime(rests)
	s.report(s.acquire("", c).ID, lease.ResultBanned, "one-more.example")
}
