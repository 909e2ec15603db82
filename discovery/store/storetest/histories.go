package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// modelFleet is small, so that proxies fill up and cool all the time.
const modelFleet = 6

// history plays random calls to a store and to the model.
type history struct {
	*testing.T
	s       *subject
	m       *model
	rnd     *rand.Rand
	restart bool
}

func agreesWithModel(t *testing.T, s *subject) { playHistory(t, s, false) }

func agreesWithModelOverRestarts(t *testing.T, s *subject) {
	s.needsReopen()
	playHistory(t, s, true)
}

func playHistory(t *testing.T, s *subject, restart bool) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	h := &history{T: t, s: s, m: newModel(), rnd: rand.New(rand.NewPCG(seed, 0)), restart: restart}
	for i := range modelFleet {
		h.offer(i)
	}
	for step := range 2000 {
		what := h.play()
		if t.Failed() {
			t.Fatalf("seed %d, step %d: %s", seed, step, what)
		}
	}
}

// play takes one random step and compares.
func (h *history) play() string {
	now := h.s.clock.Now()
	h.m.expire(now)
	switch n := h.rnd.IntN(40); {
	case n < 16:
		return h.acquire()
	case n < 20:
		id := h.anyLease()
		h.s.release(id)
		h.m.release(id, now)
		return "release " + id
	case n < 24:
		id := h.anyLease()
		rep := lease.Report{Result: lease.Results()[h.rnd.IntN(len(lease.Results()))], Target: h.anyTarget()}
		if h.rnd.IntN(3) == 0 {
			rep.RetryAfter = time.Duration(h.rnd.IntN(4000)) * time.Second
		}
		what := fmt.Sprintf("report %s %v", id, rep)
		assertSameRefusal(h.T, h.m.report(id, rep, now), h.s.store.Report(h.Context(), id, rep), what)
		return what
	case n < 28:
		return h.renew()
	case n < 32:
		return h.offer(h.rnd.IntN(modelFleet))
	case n < 36:
		h.s.clock.Step(time.Duration(h.rnd.IntN(300)) * time.Second)
		return "wait"
	case n == 37:
		return h.endCooldowns()
	case n == 38:
		return h.list()
	case n == 36 && h.restart:
		h.s.reopen()
		return "restart"
	}
	return h.count()
}

// offer changes one proxy, in any respect.
func (h *history) offer(n int) string {
	o := &lease.Offer{Candidate: *proxy(n, h.rnd.IntN(4)), Leasable: h.rnd.IntN(8) > 0}
	if h.rnd.IntN(8) == 0 {
		h.m.gone(o.ProxyUID)
		delete(h.s.told, o.ProxyUID)
		h.s.gone(o.ProxyUID)
		return "gone " + o.Proxy
	}
	o.LatencyMillis = int64(h.rnd.IntN(3))
	if h.rnd.IntN(4) == 0 {
		o.Scheme = "https"
	}
	if h.rnd.IntN(4) == 0 {
		o.ID = "instance-new"
	}
	if h.rnd.IntN(2) == 0 {
		o.Attributes = map[string]string{"geo": []string{"eu", "us"}[h.rnd.IntN(2)]}
	}
	h.m.offers[o.ProxyUID], h.s.told[o.ProxyUID] = o, o
	h.s.store.Offer(lease.Offers{Changed: []*lease.Offer{o}})
	return fmt.Sprintf("offer %+v", o)
}

func (h *history) acquire() string {
	now := h.s.clock.Now()
	req := lease.Request{Target: h.anyTarget(), TTL: time.Duration(1+h.rnd.IntN(600)) * time.Second}
	if h.rnd.IntN(3) == 0 {
		req.Selector = map[string]string{"geo": []string{"eu", "us"}[h.rnd.IntN(2)]}
	}
	if h.rnd.IntN(4) == 0 {
		req.Schemes = []string{[]string{"http", "https"}[h.rnd.IntN(2)]}
	}
	if h.rnd.IntN(4) == 0 {
		req.Exclude = []string{proxy(h.rnd.IntN(modelFleet), 0).Proxy}
	}
	if h.rnd.IntN(4) == 0 {
		req.Session = string(rune('a' + h.rnd.IntN(Limits().Sessions+2)))
	}
	full := h.m.sessionsFull(req.Session, now)
	free, stats := h.m.acquire(req, now)
	what := fmt.Sprintf("acquire %+v", req)
	l, err := h.s.store.Acquire(h.Context(), req)
	if !full.IsZero() {
		want := &lease.LimitError{Limit: lease.LimitSessions, Most: Limits().Sessions, FreeAt: full}
		assertSameRefusal(h.T, want, err, what)
		return what
	}
	if len(free) == 0 {
		var none *lease.NoMatchError
		require.ErrorAs(h, err, &none, what)
		assertSameStats(h.T, stats, none.Stats, what)
		return what
	}
	require.NoError(h, err, what)
	h.compareChoice(free, l, what)
	h.m.granted(l)
	return what
}

// assertSameRefusal compares errors. A LimitError must be the same in all
// respects.
func assertSameRefusal(t *testing.T, want, got error, what string) {
	t.Helper()
	var wanted, full *lease.LimitError
	if errors.As(want, &wanted) && assert.ErrorAs(t, got, &full, what) {
		assert.True(t, wanted.FreeAt.Equal(full.FreeAt), "%s: room at %s, not %s", what, wanted.FreeAt, full.FreeAt)
		full.FreeAt = wanted.FreeAt
	}
	assert.Equal(t, want, got, what)
}

func assertSameStats(t *testing.T, want, got lease.Stats, what string) {
	t.Helper()
	assert.True(t, want.CapacityFreeAt.Equal(got.CapacityFreeAt), "%s: room at %s, not %s", what, got.CapacityFreeAt, want.CapacityFreeAt)
	assert.True(t, want.CooldownEndsAt.Equal(got.CooldownEndsAt), "%s: cools until %s, not %s", what, got.CooldownEndsAt, want.CooldownEndsAt)
	want.CapacityFreeAt, want.CooldownEndsAt = got.CapacityFreeAt, got.CooldownEndsAt
	assert.Equal(t, want, got, what)
}

// compareChoice wants the best, or, since restarts lose the order of grants, one with
// as few leases.
func (h *history) compareChoice(free []lease.Standing, l lease.Lease, what string) {
	if !h.restart {
		assert.Equal(h, free[0].Proxy, l.Proxy, what)
		return
	}
	for _, s := range free {
		if s.Instance == l.Instance && s.Active == free[0].Active {
			return
		}
	}
	assert.Fail(h, "not one of the best", "%s: %s, of %v", what, l.Proxy, free)
}

func (h *history) renew() string {
	id, ttl := h.anyLease(), time.Duration(1+h.rnd.IntN(600))*time.Second
	want, wantErr := h.m.renew(id, ttl, h.s.clock.Now())
	got, err := h.s.store.Renew(h.Context(), id, ttl)
	what := fmt.Sprintf("renew %s for %s", id, ttl)
	var wantEnded, ended *lease.EndedError
	switch {
	case errors.As(wantErr, &wantEnded):
		require.ErrorAs(h, err, &ended, what)
		assert.Equal(h, wantEnded.Reason, ended.Reason, what)
	case wantErr != nil:
		assert.ErrorIs(h, err, wantErr, what)
	default:
		require.NoError(h, err, what)
		assertSameLease(h.T, want, got)
	}
	return what
}

func (h *history) count() string {
	now := h.s.clock.Now()
	u := h.s.usage()
	total := 0
	for i := range modelFleet {
		c := proxy(i, 0)
		for _, id := range []string{c.ID, "instance-new"} {
			instance := lease.Instance{ProxyUID: c.ProxyUID, ID: id}
			assert.Len(h, h.m.active(instance, now), u.Active[instance])
			total += u.Active[instance]
		}
		assert.True(h, h.m.coolsUntil(c.ProxyUID, "", now).Equal(u.CoolingUntil[c.ProxyUID]))
	}
	assert.Equal(h, total, u.Total())
	assert.Len(h, h.m.sessionEnds(now), u.Sessions)
	assert.Equal(h, h.m.cooldowns(now), u.Cooldowns)
	assert.Len(h, h.m.expired(now), u.Expired)
	return "count"
}

func (h *history) endCooldowns() string {
	c, target := proxy(h.rnd.IntN(modelFleet), 0), h.anyTarget()
	what := fmt.Sprintf("end cooldowns of %s for %q", c.Proxy, target)
	assert.Equal(h, h.m.endCooldowns(c.ProxyUID, target, h.s.clock.Now()), h.s.end(c, target), what)
	return what
}

func (h *history) list() string {
	now := h.s.clock.Now()
	var want []lease.Lease
	for _, l := range h.m.leases {
		if !h.m.released[l.ID] && now.Before(l.ExpiresAt) {
			want = append(want, l)
		}
	}
	got := h.s.list(lease.Query{Limit: 1 + h.rnd.IntN(10)})
	require.Len(h, got, len(want))
	for i, l := range want {
		assertSameLease(h.T, l, got[i])
		assert.Equal(h, h.m.ended(&l, now), got[i].Ended)
	}
	return "list"
}

func (h *history) anyLease() string {
	if len(h.m.leases) == 0 || h.rnd.IntN(20) == 0 {
		return "no-such-lease"
	}
	recent := h.m.leases[max(0, len(h.m.leases)-30):]
	return recent[h.rnd.IntN(len(recent))].ID
}

func (h *history) anyTarget() string {
	return []string{"", "", "a.example", "b.example", "c.example", "d.example"}[h.rnd.IntN(6)]
}
