package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis/redistest"
)

// ending is a store whose leases end in all ways, and a client of its Redis.
type ending struct {
	*testing.T
	store  *Store
	clock  *clocktesting.FakeClock
	client *goredis.Client
	keys   int
}

func newEnding(t *testing.T) *ending {
	server := redistest.Start(t)
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	cfg := configFor(t, server, t.Name(), clk)
	cfg.Cooldown, cfg.LocalTime = 5*time.Second, true
	s := Open(cfg)
	c := server.Client()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, c.Close())
	})
	s.Offer(fleet(4, 100))
	return &ending{T: t, store: s, clock: clk, client: c}
}

func (e *ending) acquire(i int, ttl time.Duration) lease.Lease {
	e.Helper()
	e.keys++
	l, err := e.store.Acquire(e.Context(), lease.Request{
		TTL: ttl, Holder: fmt.Sprint("holder-", i%2), Session: fmt.Sprint("session-", i%8),
		Key: fmt.Sprint("key-", e.keys), Fingerprint: "f", Target: fmt.Sprint(i%5, ".example"),
	})
	require.NoError(e, err)
	return l
}

// round has leases begin and end: each fourth expires, the others are released,
// some of them renewed or reported on before.
func (e *ending) round() {
	e.Helper()
	for i := range 64 {
		l := e.acquire(i, 10*time.Second)
		var err error
		switch i % 4 {
		case 0:
			continue
		case 1:
			_, err = e.store.Renew(e.Context(), l.ID, 20*time.Second)
		case 2:
			err = e.store.Report(e.Context(), l.ID, lease.Report{Result: lease.ResultRateLimited, Target: "other.example"})
		}
		require.NoError(e, err)
		require.NoError(e, e.store.Release(e.Context(), l.ID))
	}
}

// entries counts what Redis holds, but for the log, which has a bound of its own.
func (e *ending) entries() map[string]int64 {
	e.Helper()
	parts, err := redistest.Census(e.Context(), e.client, e.Name())
	require.NoError(e, err)
	delete(parts, "log")
	return parts
}

// tidy sweeps what has ended.
func (e *ending) tidy() {
	e.Helper()
	for range 20 { // some at each call
		require.NoError(e, e.store.Release(e.Context(), "no-such-lease"))
	}
}

// nothing is what Redis always holds: three values in :count that are no counters, the
// last fencing token and the number of changes.
func nothing() map[string]int64 { return map[string]int64{"count": 3, "fence": 1, "rev": 1} }

// Sessions last for days and leases for minutes: ended leases must leave nothing behind.
func TestRedisHoldsNothingOfEndedLeases(t *testing.T) {
	e := newEnding(t)
	var settled map[string]int64
	for n := range 12 {
		e.round()
		held := e.entries()
		if n == 2 {
			settled = held
		}
		if n > 2 {
			require.Equal(t, settled, held, "after round %d", n)
		}
		e.clock.Step(time.Minute)
	}
	e.clock.Step(time.Hour)
	e.tidy()
	assert.Equal(t, nothing(), e.entries())
	require.NoError(t, e.store.mirror.Check())
}

func TestReleaseFreesTheIdempotencyKey(t *testing.T) {
	e := newEnding(t)
	l := e.acquire(0, 24*time.Hour)
	require.EqualValues(t, 1, e.entries()["keys"])
	require.NoError(t, e.store.Release(t.Context(), l.ID))
	held := e.entries()
	assert.NotContains(t, held, "keys")
	assert.EqualValues(t, 1, held["due"], "the session's")

	// The key of a lease that took another's place is not the other's to free.
	first, err := e.store.Acquire(t.Context(), lease.Request{TTL: time.Minute, Key: "k"})
	require.NoError(t, err)
	replaced := fleet(4, 100)
	for _, o := range replaced.Changed {
		o.ID += "-new"
	}
	e.store.Offer(replaced)
	second, err := e.store.Acquire(t.Context(), lease.Request{TTL: time.Minute, Key: "k"})
	require.NoError(t, err)
	require.NotEqual(t, first.ID, second.ID)
	require.NoError(t, e.store.Release(t.Context(), first.ID))
	assert.EqualValues(t, 1, e.entries()["keys"])
	require.NoError(t, e.store.Release(t.Context(), second.ID))
	assert.NotContains(t, e.entries(), "keys")
}

// The log that replicas follow has at most about 20,000 entries: Redis drops whole
// nodes of a hundred.
func TestRedisTrimsTheLog(t *testing.T) {
	e := newEnding(t)
	pipe := e.client.Pipeline()
	const before = 25_000
	for i := range before {
		pipe.XAdd(t.Context(), &goredis.XAddArgs{Stream: e.store.key + ":log", ID: fmt.Sprint(i+1, "-1"), Values: []string{"n", "x", "R", "id", "", ""}})
	}
	pipe.Set(t.Context(), e.store.key+":rev", before, 0)
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	e.acquire(0, time.Minute)
	n, err := e.client.XLen(t.Context(), e.store.key+":log").Result()
	require.NoError(t, err)
	assert.Less(t, n, int64(20_100))
	assert.GreaterOrEqual(t, n, int64(20_000))
}

func TestOldestExpiredLeasesAreEvicted(t *testing.T) {
	server := redistest.Start(t)
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := replicas(t, server, clk, fleet(1, 1000), 2)
	c := server.Client()
	defer func() { _ = c.Close() }()
	most := int64(s[0].cfg.Limits.Expired)
	runs := int64(0)
	for i := range 200 {
		req := anyProxy()
		req.TTL = time.Second
		if i%10 == 0 {
			req.TTL = time.Hour
			runs++
		}
		_, err := s[i%2].Acquire(t.Context(), req)
		require.NoError(t, err)
		clk.Step(100 * time.Millisecond)
		held, err := c.HLen(t.Context(), s[0].key+":leases").Result()
		require.NoError(t, err)
		require.LessOrEqual(t, held, most+runs+11, "at most ten run for a second, and one has ended since")
	}
	clk.Step(time.Second)
	require.NoError(t, s[0].Release(t.Context(), "no-such-lease"))
	for _, key := range []string{":leases", ":ends"} {
		count := c.HLen
		if key == ":ends" {
			count = c.ZCard
		}
		held, err := count(t.Context(), s[0].key+key).Result()
		require.NoError(t, err)
		assert.Equal(t, most+runs, held, key)
	}
	for _, r := range s {
		u, err := r.Usage(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, runs, u.Total())
		assert.EqualValues(t, most, u.Expired)
		assert.Zero(t, r.Losses(), "an eviction is no loss")
		require.NoError(t, r.mirror.Check())
	}
}

// Of an expired lease Redis keeps what a late report and the holder's error need.
func TestRecordsOfExpiredLeasesAreStripped(t *testing.T) {
	server := redistest.Start(t)
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := replicas(t, server, clk, fleet(1, 1), 1)[0]
	c := server.Client()
	defer func() { _ = c.Close() }()
	req := anyProxy()
	req.Target, req.Session, req.Key, req.Fingerprint = "shop.example/<ü>", strings.Repeat("s", 128), strings.Repeat("k", 255), "f"
	l, err := s.Acquire(t.Context(), req)
	require.NoError(t, err)
	record := func() string {
		require.NoError(t, s.Release(t.Context(), "no-such-lease"))
		text, err := c.HGet(t.Context(), s.key+":leases", l.ID).Result()
		require.NoError(t, err)
		return text
	}
	running := record()
	assert.Contains(t, running, req.Session)
	clk.Step(time.Minute)
	short := record()
	assert.Less(t, len(short), len(running)-len(req.Session)-len(req.Key))
	assert.Equal(t, short, record(), "once")

	for _, r := range append(replicas(t, server, clk, fleet(1, 1), 1), s) {
		_, err = r.Get(t.Context(), l.ID)
		ended := (*lease.EndedError)(nil)
		require.ErrorAs(t, err, &ended)
		want := lease.Lease{
			ID: l.ID, Instance: l.Instance, Proxy: l.Proxy, Holder: l.Holder, Target: l.Target,
			ExpiresAt: l.ExpiresAt, FencingToken: l.FencingToken,
		}
		assert.Equal(t, want, ended.Lease)
		_, err = r.Renew(t.Context(), l.ID, time.Minute)
		require.ErrorAs(t, err, &ended)
		require.NoError(t, r.Report(t.Context(), l.ID, lease.Report{Result: lease.ResultBanned}))
		assert.Zero(t, r.Losses())
		require.NoError(t, r.mirror.Check())
	}
	cooling, err := s.Cooldowns(t.Context(), l.Instance.ProxyUID)
	require.NoError(t, err)
	require.Len(t, cooling, 1)
	assert.Equal(t, req.Target, cooling[0].Target)
	require.NoError(t, s.Release(t.Context(), l.ID))
	_, err = s.Get(t.Context(), l.ID)
	assert.ErrorIs(t, err, lease.ErrUnknown)
}
