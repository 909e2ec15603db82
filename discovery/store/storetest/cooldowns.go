package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

func targetCooldown(t *testing.T, s *subject) {
	for _, result := range []lease.Result{lease.ResultRateLimited, lease.ResultBanned} {
		target := string(result) + ".example"
		a, b := proxy(1, 9), proxy(2, 9)
		l := s.acquire(target, a)
		s.report(l.ID, result, target)

		assert.Equal(t, b.Proxy, s.acquire(target, a, b).Proxy, "another proxy for that target")
		s.acquire("other.example", a)
		s.acquire("", a)

		stats := s.refused(target, a)
		assert.Equal(t, 1, stats.InCooldown)
		assert.True(t, s.clock.Now().Add(Window).Equal(stats.FreeAt()))
	}
	s.clock.Step(Window - time.Nanosecond)
	s.refused("banned.example", proxy(1, 9))
	s.clock.Step(time.Nanosecond)
	s.acquire("banned.example", proxy(1, 9))
}

func globalCooldown(t *testing.T, s *subject) {
	a := proxy(1, 9)
	l := s.acquire("", a)
	s.report(l.ID, lease.ResultBanned, "")
	assert.Equal(t, 1, s.refused("", a).InCooldown)
	assert.Equal(t, 1, s.refused("example.com", a).InCooldown)

	assert.True(t, s.clock.Now().Add(Window).Equal(s.usage().CoolingUntil[a.ProxyUID]))
	s.clock.Step(Window)
	s.acquire("example.com", a)
	assert.Empty(t, s.usage().CoolingUntil)
}

func targetFallback(t *testing.T, s *subject) {
	tests := []struct {
		name, leased, reported string
		cools, spares          []string
	}{
		{"the report's own", "leased.example", "reported.example", []string{"reported.example"}, []string{"leased.example", ""}},
		{"the lease's", "leased.example", "", []string{"leased.example"}, []string{"reported.example", ""}},
		{"none at all", "", "", []string{"", "leased.example"}, nil},
		{"the report's, without one of the lease", "", "reported.example", []string{"reported.example"}, []string{"leased.example", ""}},
	}
	for i, tt := range tests {
		c := proxy(i, 9)
		l := s.acquire(tt.leased, c)
		s.report(l.ID, lease.ResultRateLimited, tt.reported)
		for _, target := range tt.cools {
			assert.Equal(t, 1, s.refused(target, c).InCooldown, "%s: cools for %q", tt.name, target)
		}
		for _, target := range tt.spares {
			s.acquire(target, c)
		}
	}
}

func policies(t *testing.T, s *subject) {
	for i, p := range lease.Policies {
		c := proxy(i, 9)
		l := s.acquire("leased.example", c)
		s.report(l.ID, p.Result, "reported.example")
		want := map[string]bool{"": p.Scope == lease.ScopeAll, "reported.example": p.Scope != lease.ScopeNone, "leased.example": p.Scope == lease.ScopeAll}
		for target, cools := range want {
			if !cools {
				s.acquire(target, c)
				continue
			}
			stats := s.refused(target, c)
			assert.True(t, s.clock.Now().Add(Window/time.Duration(p.Divisor)).Equal(stats.FreeAt()), "%s: free at %s", p.Result, stats.FreeAt())
		}
	}
}

func okCoolsNothing(_ *testing.T, s *subject) {
	c := proxy(1, 9)
	l := s.acquire("example.com", c)
	s.report(l.ID, lease.ResultOK, "")
	s.report(l.ID, lease.ResultOK, "example.com")
	s.acquire("example.com", c)

	s.report(l.ID, lease.ResultBanned, "")
	s.report(l.ID, lease.ResultOK, "")
	s.refused("example.com", c) // nor does it end a cooldown
}

func retryAfter(t *testing.T, s *subject) {
	for i, result := range []lease.Result{lease.ResultRateLimited, lease.ResultBanned} {
		c := proxy(i, 9)
		l := s.acquire("example.com", c)
		report := func(length time.Duration) time.Time {
			require.NoError(t, s.store.Report(t.Context(), l.ID, lease.Report{Result: result, RetryAfter: length}))
			return s.refused("example.com", c).FreeAt()
		}
		start := s.clock.Now()
		assert.True(t, start.Add(7*time.Second).Equal(report(7*time.Second)))
		assert.True(t, start.Add(7*time.Second).Equal(report(3*time.Second)), "never shortened")
		s.clock.Step(7 * time.Second)
		s.acquire("example.com", c)

		assert.True(t, s.clock.Now().Add(lease.MaxRetryAfter).Equal(report(24*time.Hour)), "more is cut, and may be longer than the store's cooldown")
		assert.True(t, s.clock.Now().Add(lease.MaxRetryAfter).Equal(report(0)), "a report without one does not shorten it either")
		s.acquire("other.example", c)
	}
}

func targetUnreachable(_ *testing.T, s *subject) {
	c := proxy(1, 9)
	s.report(s.acquire("", c).ID, lease.ResultTargetUnreachable, "")
	l := s.acquire("", c) // a target without a name rests for no other
	s.report(l.ID, lease.ResultTargetUnreachable, "dead.example")
	s.refused("dead.example", c)
	s.acquire("", c)
	s.acquire("other.example", c)
	s.clock.Step(30 * time.Second)
	s.acquire("dead.example", c)
}

func prolongedCooldown(t *testing.T, s *subject) {
	c := proxy(1, 9)
	l := s.acquire("example.com", c)
	s.report(l.ID, lease.ResultRateLimited, "")
	s.clock.Step(Window / 2)
	s.report(l.ID, lease.ResultRateLimited, "")
	stats := s.refused("example.com", c)
	assert.True(t, s.clock.Now().Add(Window).Equal(stats.FreeAt()))
	s.clock.Step(Window - time.Second)
	s.refused("example.com", c)
	s.clock.Step(time.Second)
	s.acquire("example.com", c)
}

func cooldownOutlivesLease(t *testing.T, s *subject) {
	c := proxy(1, 9)
	l := s.acquire("example.com", c)
	s.report(l.ID, lease.ResultBanned, "")
	s.release(l.ID)
	assert.Equal(t, 1, s.refused("example.com", c).InCooldown)
}

// earliestFree sets up candidates that become free at different times.
func earliestFree(t *testing.T, s *subject) {
	full, cooling, both := proxy(1, 1), proxy(2, 1), proxy(3, 1)
	start := s.clock.Now()
	hold := func(c *lease.Candidate, ttl time.Duration) lease.Lease {
		s.fleet(c)
		return s.grant(lease.Request{TTL: ttl, Target: "example.com"})
	}
	// both: cools for one window, and is held for longer.
	s.report(hold(both, Window+time.Hour).ID, lease.ResultBanned, "")
	stats := s.refused("example.com", both)
	assert.Equal(t, 1, stats.InCooldown, "counted once, as cooling")
	assert.True(t, start.Add(Window+time.Hour).Equal(stats.FreeAt()), "free when both are over: %s", stats.FreeAt())

	// cooling: for this target for one window, for another a minute longer.
	l := hold(cooling, 2*Window)
	s.report(l.ID, lease.ResultBanned, "")
	s.clock.Step(time.Minute)
	s.report(l.ID, lease.ResultBanned, "other.example")
	s.release(l.ID)
	assert.True(t, start.Add(Window).Equal(s.refused("example.com", cooling).FreeAt()))

	hold(full, 3*Window)
	stats = s.refused("example.com", full, cooling, both)
	assert.Equal(t, 1, stats.AtCapacity)
	assert.Equal(t, 2, stats.InCooldown)
	assert.True(t, start.Add(time.Minute+3*Window).Equal(stats.CapacityFreeAt))
	assert.True(t, start.Add(Window).Equal(stats.CooldownEndsAt))
	assert.True(t, start.Add(Window).Equal(stats.FreeAt()))
	s.clock.SetTime(stats.FreeAt())
	assert.Equal(t, cooling.Proxy, s.acquire("example.com", full, cooling, both).Proxy, "and then it is")
}
