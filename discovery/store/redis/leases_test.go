package redis

import (
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis/redistest"
)

// ending is a store with leases that end in all ways, and Redis to look into.
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

// round has leases begin and end: each fourth expires, the others are given back,
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

// tidy has what is over be forgotten.
func (e *ending) tidy() {
	e.Helper()
	for range 20 { // some at each call
		require.NoError(e, e.store.Release(e.Context(), "no-such-lease"))
	}
}

// nothing is what Redis holds for good: three values in :count that count nothing, the
// last fencing token and the number of changes.
func nothing() map[string]int64 { return map[string]int64{"count": 3, "fence": 1, "rev": 1} }

// Sessions go on for days and their leases for minutes: none of what is kept of those
// grows with how many there were.
func TestRedisHoldsNothingOfLeasesThatHaveEnded(t *testing.T) {
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

// A key has no use once its lease was given back, however long that might have run.
func TestRedisForgetsTheKeyOfALeaseThatIsGivenBack(t *testing.T) {
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

// The log that replicas follow has about 20,000 entries at the most: Redis drops whole
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
