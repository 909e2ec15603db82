package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis/redistest"
)

// recovery is for how long nothing is granted after leases were lost: see repair.lua.
const recovery = 2 * time.Second

// damage is done to the data in Redis.
type damage struct {
	do func(ctx context.Context, c *goredis.Client, key string, held []lease.Lease) error
	// quiet: leases may be lost, so nothing is granted for a while.
	quiet bool
}

// damages are what evictions, failovers and manual changes do.
func damages() map[string]damage {
	out := map[string]damage{
		"FLUSHALL": {quiet: true, do: func(ctx context.Context, c *goredis.Client, _ string, _ []lease.Lease) error {
			return c.FlushAll(ctx).Err()
		}},
		"a record is gone": {quiet: true, do: func(ctx context.Context, c *goredis.Client, key string, held []lease.Lease) error {
			return c.HDel(ctx, key+":leases", held[1].ID).Err()
		}},
		"all places seem free, and all records are gone": {quiet: true, do: func(ctx context.Context, c *goredis.Client, key string, _ []lease.Lease) error {
			return errors.Join(c.Del(ctx, key+":leases", key+":due", key+":keys", key+":sessions", key+":cooling").Err(), remove(ctx, c, key+":running:*"))
		}},
		"all records are gone with all that would tell of it, and the log": {quiet: true, do: func(ctx context.Context, c *goredis.Client, key string, _ []lease.Lease) error {
			return c.Del(ctx, key+":leases", key+":due", key+":keys", key+":sessions", key+":cooling", key+":log").Err()
		}},
		"an entry of due is gone": {do: func(ctx context.Context, c *goredis.Client, key string, held []lease.Lease) error {
			return c.ZRem(ctx, key+":due", "L"+held[0].ID).Err()
		}},
		"a place seems free": {do: func(ctx context.Context, c *goredis.Client, key string, held []lease.Lease) error {
			return c.ZRem(ctx, key+":running:"+instanceName(held[0].Instance), held[0].ID).Err()
		}},
		"fence is no number": {do: func(ctx context.Context, c *goredis.Client, key string, _ []lease.Lease) error {
			return c.Set(ctx, key+":fence", "garbage", 0).Err()
		}},
		"rev is no number": {quiet: true, do: func(ctx context.Context, c *goredis.Client, key string, _ []lease.Lease) error {
			return c.Set(ctx, key+":rev", "garbage", 0).Err()
		}},
		"a count is no number": {do: func(ctx context.Context, c *goredis.Client, key string, held []lease.Lease) error {
			return errors.Join(c.HSet(ctx, key+":count", "R"+instanceName(held[0].Instance), "garbage").Err(),
				c.HSet(ctx, key+":count", "Stest", "garbage").Err())
		}},
	}
	loses := []string{"leases", "rev"} // leases may be lost with them
	for _, name := range []string{"leases", "due", "rev", "log", "fence", "keys", "sessions", "cooling", "count", "ends", "running:*", "of:*"} {
		quiet := slices.Contains(loses, name)
		out[name+" is gone"] = damage{quiet: quiet, do: func(ctx context.Context, c *goredis.Client, key string, _ []lease.Lease) error {
			return remove(ctx, c, key+":"+name)
		}}
		out[name+" is of another type"] = damage{quiet: quiet, do: func(ctx context.Context, c *goredis.Client, key string, _ []lease.Lease) error {
			return eachKey(ctx, c, key+":"+name, func(name string) error {
				return errors.Join(c.Del(ctx, name).Err(), c.SAdd(ctx, name, "garbage").Err())
			})
		}}
	}
	return out
}

// eachKey calls f for every key that matches, and fails without any.
func eachKey(ctx context.Context, c *goredis.Client, pattern string, f func(name string) error) error {
	names, err := c.Keys(ctx, pattern).Result()
	if err != nil || len(names) == 0 {
		return fmt.Errorf("no %s: %w", pattern, err)
	}
	for _, name := range names {
		err = errors.Join(err, f(name))
	}
	return err
}

func remove(ctx context.Context, c *goredis.Client, pattern string) error {
	return eachKey(ctx, c, pattern, func(name string) error { return c.Del(ctx, name).Err() })
}

// After any loss or corruption in Redis no held lease is lost, no slot is granted twice,
// and no operator has to act.
func TestLostDataIsRepairedAndRestored(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client()
	defer func() { _ = c.Close() }()
	for name, d := range damages() {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
			s := replicas(t, server, clk, fleet(3, 2), 2)
			named := anyProxy()
			named.Session, named.Key, named.Fingerprint, named.Target = "session", "key", "print", "shop.example"
			var held []lease.Lease
			for _, req := range []lease.Request{anyProxy(), anyProxy(), anyProxy(), named} {
				l, err := s[0].Acquire(ctx, req)
				require.NoError(t, err)
				held = append(held, l)
			}
			require.NoError(t, s[0].Report(ctx, held[0].ID, lease.Report{Result: lease.ResultBanned, Target: "other.example"}))
			for _, r := range s {
				require.NoError(t, r.sync(ctx))
			}

			require.NoError(t, d.do(ctx, c, s[0].key, held))
			clk.Step(time.Second) // fencing tokens that are lost begin with the time
			w := &wreck{T: t, ctx: ctx, clk: clk, stores: s, held: held, named: named}
			w.check(d.quiet)
			clk.Step(2 * time.Hour) // all of it has ended
			for range 5 {
				require.NoError(t, s[0].Release(ctx, "no-such-lease"))
			}
			names, err := c.Keys(ctx, s[0].key+":*").Result()
			require.NoError(t, err)
			assert.ElementsMatch(t, []string{s[0].key + ":rev", s[0].key + ":log", s[0].key + ":fence", s[0].key + ":count"}, names, "nothing is left behind")
			for _, r := range s {
				require.NoError(t, r.sync(ctx))
				require.NoError(t, r.mirror.Check())
				require.NoError(t, r.Ready())
			}
		})
	}
}

// wreck is two replicas of a damaged Redis.
type wreck struct {
	*testing.T
	ctx    context.Context
	clk    *clocktesting.FakeClock
	stores []*Store
	held   []lease.Lease // the last one by the request named
	named  lease.Request
}

func (w *wreck) check(quiet bool) {
	_, err := w.stores[1].Acquire(w.ctx, lease.Request{TTL: time.Minute, Holder: "test", Exclude: []string{"crawl/proxy-0", "crawl/proxy-1", "crawl/proxy-2"}})
	require.Error(w, err, "none to choose, but something to notice")
	for _, r := range w.stores {
		r.poll(w.ctx)
		require.NoError(w, w.ctx.Err(), "it does not stop")
		require.NoError(w, r.Ready())
	}
	for _, r := range append(w.stores, w.newcomer()) {
		for _, l := range w.held {
			_, err := r.Renew(w.ctx, l.ID, time.Minute)
			require.NoError(w, err, "a lease is lost")
		}
	}
	if quiet {
		_, err := w.stores[0].Acquire(w.ctx, anyProxy())
		require.ErrorIs(w, err, lease.ErrUnavailable)
		w.clk.Step(recovery)
	}
	again, err := w.stores[1].Acquire(w.ctx, w.named)
	require.NoError(w, err)
	last := w.held[len(w.held)-1]
	assert.Equal(w, last.ID, again.ID, "the key is known")
	w.free()
	w.full()
}

// newcomer is a replica with an empty mirror.
func (w *wreck) newcomer() *Store {
	r := w.stores[0]
	s := Open(r.cfg)
	w.Cleanup(func() { _ = s.Close() })
	s.key = r.key
	s.Offer(fleet(3, 2))
	return s
}

// free wants the cooldown and the session to be unchanged.
func (w *wreck) free() {
	cooled := w.held[0].Proxy
	var none *lease.NoMatchError
	req := lease.Request{TTL: time.Minute, Holder: "test", Target: "other.example"}
	for i := range 3 {
		if name := fmt.Sprintf("crawl/proxy-%d", i); name != cooled {
			req.Exclude = append(req.Exclude, name)
		}
	}
	_, err := w.newcomer().Acquire(w.ctx, req)
	require.ErrorAs(w, err, &none)
	assert.Equal(w, 1, none.InCooldown)
	in := lease.Request{TTL: time.Minute, Holder: "test", Session: "session"}
	last := w.held[len(w.held)-1]
	l, err := w.newcomer().Acquire(w.ctx, in)
	if err == nil {
		w.held = append(w.held, l)
		assert.Equal(w, last.Proxy, l.Proxy, "the session stays")
		return
	}
	require.ErrorAs(w, err, &none)
	assert.Equal(w, 1, none.Considered, "the session stays on its full proxy")
}

// full leases what is left, and not one more.
func (w *wreck) full() {
	for {
		l, err := w.newcomer().Acquire(w.ctx, anyProxy())
		var none *lease.NoMatchError
		if errors.As(err, &none) {
			break
		}
		require.NoError(w, err)
		for _, before := range w.held {
			require.Greater(w, l.FencingToken, before.FencingToken)
		}
		w.held = append(w.held, l)
	}
	per := map[string]int{}
	for _, l := range w.held {
		per[l.Proxy]++
	}
	assert.Equal(w, map[string]int{"crawl/proxy-0": 2, "crawl/proxy-1": 2, "crawl/proxy-2": 2}, per)
}

// The clock of Redis may be set back, and a failover may lead to a clock that is behind.
func TestClockOfRedisSetBackExpiresNoLease(t *testing.T) {
	server := redistest.Start(t)
	s := Open(configFor(t, server, "back", clock.RealClock{}))
	defer func() { _ = s.Close() }()
	s.Offer(fleet(1, 1))
	held, err := s.Acquire(t.Context(), anyProxy())
	require.NoError(t, err)

	s.mu.Lock()
	ahead := answer{status: statusOK, now: s.time.now().Add(time.Hour)}
	s.mu.Unlock()
	s.applyAnswer(ahead) // as if its clock had been an hour ahead for a moment
	got, err := s.Get(t.Context(), held.ID)
	require.NoError(t, err)
	assert.Equal(t, held, got)
	_, err = s.Acquire(t.Context(), anyProxy())
	var none *lease.NoMatchError
	require.ErrorAs(t, err, &none, "its place is taken")
}

// Retries against a Redis with inconsistent answers are bounded.
func TestInconsistentRedisIsUnavailable(t *testing.T) {
	server := redistest.Start(t)
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := replicas(t, server, clk, fleet(1, 1), 1)[0]
	s.scripts.sync = goredis.NewScript(`return {'ok', ARGV[1], 'reload'}`)
	require.ErrorIs(t, s.sync(t.Context()), lease.ErrUnavailable)
	require.ErrorIs(t, s.Ready(), lease.ErrUnavailable)
	// So are those against one that confirms a grant that it does not have.
	s.scripts = newScripts()
	s.scripts.acquire = goredis.NewScript(`return {'ok', ARGV[1], 'changes', {}}`)
	_, err := s.Acquire(t.Context(), anyProxy())
	require.ErrorIs(t, err, lease.ErrUnavailable)
	s.scripts = newScripts()
	_, err = s.Acquire(t.Context(), anyProxy())
	require.NoError(t, err)
}
