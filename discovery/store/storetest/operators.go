package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// list follows all pages of a query.
func (s *subject) list(q lease.Query) (all []lease.Lease) {
	s.Helper()
	for {
		page, err := s.store.List(context.Background(), q)
		require.NoError(s, err)
		require.LessOrEqual(s, len(page.Leases), q.Limit)
		all = append(all, page.Leases...)
		if page.Next == 0 {
			return all
		}
		require.Greater(s, page.Next, q.After, "pages go on")
		q.After = page.Next
	}
}

func listed(t *testing.T, s *subject) {
	s.fleet(proxies(10, 9)...)
	assert.Empty(t, s.list(lease.Query{Limit: 5}))
	var granted []lease.Lease
	for i := range 30 {
		req := lease.Request{TTL: time.Minute, Holder: "crawler", Target: fmt.Sprint(i, ".example"), Key: fmt.Sprint(i)}
		granted = append(granted, s.grant(req))
	}
	s.release(granted[0].ID)
	s.release(granted[17].ID)
	renewed := s.renew(granted[3].ID, time.Hour)
	granted[3] = renewed
	want := append(append([]lease.Lease{}, granted[1:17]...), granted[18:]...)
	check := func() {
		t.Helper()
		for _, limit := range []int{1, 7, 28, 1000} {
			got := s.list(lease.Query{Limit: limit})
			require.Len(t, got, len(want))
			for i := range want {
				assertSameLease(t, want[i], got[i])
				assert.Empty(t, got[i].Ended)
			}
		}
	}
	check()
	page, err := s.store.List(t.Context(), lease.Query{Limit: 9, After: ^uint64(0)})
	require.NoError(t, err)
	assert.Zero(t, page)
	if s.reopenStore != nil {
		s.reopen()
		check()
	}
	s.clock.Step(time.Minute)
	want = want[2:3]
	check()
}

func listedFiltered(t *testing.T, s *subject) {
	s.fleet(proxies(3, 90)...)
	for i := range 60 {
		s.grant(lease.Request{TTL: time.Minute, Holder: fmt.Sprint("h", i%2), Session: fmt.Sprint("s", i%3), Target: fmt.Sprint("t", i%5)})
	}
	all := s.list(lease.Query{Limit: 100})
	for _, q := range []lease.Query{
		{}, {Holder: "h0"}, {Session: "s1"}, {Target: "t4"}, {Proxy: proxy(1, 0).Proxy}, {Proxy: "crawl/none"},
		{Holder: "h1", Session: "s2", Target: "t3"}, {Holder: "h1", Proxy: all[1].Proxy}, {Holder: "h2"},
	} {
		var want []string
		for _, l := range all {
			if q.Matches(l) {
				want = append(want, l.ID)
			}
		}
		for _, q.Limit = range []int{2, 100} {
			var got []string
			for _, l := range s.list(q) {
				got = append(got, l.ID)
			}
			assert.Equal(t, want, got, "%+v", q)
		}
	}
	assert.Len(t, s.list(lease.Query{Holder: "h1", Session: "s2", Target: "t3", Limit: 9}), 2)
}

func listedEnded(t *testing.T, s *subject) {
	c, lost := proxy(1, 9), proxy(2, 9)
	s.acquire("", c)
	s.acquire("", lost)
	s.fleet(c, lost)
	replaced := *c
	replaced.ID = "instance-new"
	s.fleet(&replaced)
	s.gone(lost.ProxyUID)
	got := s.list(lease.Query{Limit: 9})
	require.Len(t, got, 2)
	assert.Equal(t, lease.EndReplaced, got[0].Ended)
	assert.Equal(t, lease.EndDeleted, got[1].Ended)
}

// parallelPages has an operator list while crawlers come and go: leases that run
// all the time are listed once, and no lease twice.
func parallelPages(t *testing.T, s *subject) {
	s.fleet(proxies(8, 100)...)
	stay := map[string]bool{}
	done := make(chan struct{})
	for range 40 {
		stay[s.grant(request("stay.example")).ID] = true
		s.release(s.grant(request("")).ID)
	}
	go func() {
		defer close(done)
		clients(63, func(int) {
			for range 10 {
				l, err := s.store.Acquire(t.Context(), request("go.example"))
				if assert.NoError(t, err) {
					assert.NoError(t, s.store.Release(t.Context(), l.ID))
				}
			}
		})
	}()
	for range 5 {
		seen := map[string]int{}
		for _, l := range s.list(lease.Query{Limit: 7}) {
			seen[l.ID]++
			assert.Equal(t, 1, seen[l.ID])
		}
		for id := range stay {
			assert.Equal(t, 1, seen[id])
		}
	}
	<-done
	assert.Len(t, s.list(lease.Query{Limit: 7}), len(stay))
}

func (s *subject) cooldowns(c *lease.Candidate) []lease.Cooldown {
	s.Helper()
	out, err := s.store.Cooldowns(context.Background(), c.ProxyUID)
	require.NoError(s, err)
	return out
}

func (s *subject) end(c *lease.Candidate, target string) int {
	s.Helper()
	n, err := s.store.EndCooldowns(context.Background(), c.ProxyUID, target)
	require.NoError(s, err)
	return n
}

func cooldownsEnded(t *testing.T, s *subject) {
	a, b := proxy(1, 9), proxy(2, 9)
	assert.Empty(t, s.cooldowns(a))
	assert.Zero(t, s.end(a, ""))
	l, other := s.acquire("", a), s.acquire("", b)
	until := s.clock.Now().Add(Window)
	for _, target := range []string{"2.example", "1.example", "3.example"} {
		s.report(l.ID, lease.ResultBanned, target)
		s.report(other.ID, lease.ResultBanned, target)
	}
	s.report(l.ID, lease.ResultConnectError, "")
	want := []lease.Cooldown{{Target: "", Until: s.clock.Now().Add(Window / 20)}, {Target: "1.example", Until: until}, {Target: "2.example", Until: until}, {Target: "3.example", Until: until}}
	got := s.cooldowns(a)
	require.Len(t, got, len(want))
	for i := range want {
		assert.Equal(t, want[i].Target, got[i].Target)
		assert.True(t, want[i].Until.Equal(got[i].Until))
	}

	s.clock.Step(Window / 20)
	require.Len(t, s.cooldowns(a), 3, "one has ended")
	assert.Equal(t, 1, s.end(a, "2.example"))
	assert.Zero(t, s.end(a, "2.example"))
	assert.Zero(t, s.end(a, "4.example"))
	s.acquire("2.example", a)
	assert.Equal(t, 1, s.refused("1.example", a).InCooldown)
	s.report(l.ID, lease.ResultBanned, "5.example") // there is room again
	assert.Equal(t, 3, s.end(a, ""))
	assert.Empty(t, s.cooldowns(a))
	for _, target := range []string{"1.example", "3.example", "5.example", ""} {
		s.acquire(target, a)
	}
	assert.Len(t, s.cooldowns(b), 3, "those of others go on")
	s.report(l.ID, lease.ResultBanned, "1.example")
	assert.Equal(t, 1, s.refused("1.example", a).InCooldown, "and the next report counts")
}

func cooldownsEndedWake(t *testing.T, s *subject) {
	c := proxy(1, 9)
	l := s.acquire("", c)
	s.report(l.ID, lease.ResultBanned, "")
	freed, changed := s.store.Freed(), s.store.Changed()
	assert.Equal(t, 1, s.end(c, ""))
	s.woken("an ended cooldown", freed)
	s.woken("an ended cooldown", changed)
	s.acquire("", c)
}

func cooldownsEndedReopened(t *testing.T, s *subject) {
	s.needsReopen()
	c := proxy(1, 9)
	l := s.acquire("", c)
	s.report(l.ID, lease.ResultBanned, "1.example")
	s.report(l.ID, lease.ResultBanned, "2.example")
	assert.Equal(t, 1, s.end(c, "1.example"))
	s.reopen()
	assert.Len(t, s.cooldowns(c), 1)
	s.acquire("1.example", c)
	assert.Equal(t, 1, s.refused("2.example", c).InCooldown)
}
