package redis

import (
	"context"
	"log/slog"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/redis/redistest"
)

// Evictions and careless hands take single keys. What is left must neither hang
// a replica nor end the service for good.
func TestRedisThatLosesOneOfItsKeysServesOn(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client()
	defer func() { _ = c.Close() }()
	for _, lost := range []string{"leases", "due", "rev", "log", "fence", "keys", "sessions", "cooling", "count", "of:*", "running:*", "*"} {
		t.Run(lost, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
			s := replicas(t, server, clk, fleet(3, 5), 2)
			req := anyProxy()
			req.Session, req.Key, req.Fingerprint, req.Target = "session", "key", "print", "shop.example"
			var before lease.Lease
			for range 3 {
				l, err := s[0].Acquire(ctx, anyProxy())
				require.NoError(t, err)
				before = l
			}
			l, err := s[0].Acquire(ctx, req)
			require.NoError(t, err)
			require.NoError(t, s[0].Report(ctx, before.ID, lease.Report{Result: lease.ResultBanned, Target: "other.example"}))
			for _, r := range s {
				require.NoError(t, r.sync(ctx))
			}

			names, err := c.Keys(ctx, s[0].key+":"+lost).Result()
			require.NoError(t, err)
			require.NotEmpty(t, names)
			require.NoError(t, c.Del(ctx, names...).Err())
			clk.Step(time.Second) // fencing tokens that are lost begin with the time

			for _, r := range s {
				r.follow(ctx)
				require.NoError(t, ctx.Err(), "it goes round in circles")
				_, err := r.Get(ctx, l.ID)
				require.NotErrorIs(t, err, lease.ErrUnavailable)
				_, err = r.Renew(ctx, l.ID, time.Minute)
				require.NotErrorIs(t, err, lease.ErrUnavailable)
				got, err := r.Acquire(ctx, req)
				require.NoError(t, err)
				assert.Greater(t, got.FencingToken, before.FencingToken)
				got, err = r.Acquire(ctx, anyProxy())
				require.NoError(t, err)
				assert.Greater(t, got.FencingToken, before.FencingToken)
				require.NoError(t, r.Report(ctx, got.ID, lease.Report{Result: lease.ResultBanned, Target: "other.example"}))
				require.NoError(t, r.Release(ctx, got.ID))
				_, err = r.Usage(ctx)
				require.NoError(t, err)
			}
			clk.Step(time.Hour) // all of it is over
			for _, r := range s {
				got, err := r.Acquire(ctx, req)
				require.NoError(t, err)
				require.NoError(t, r.Release(ctx, got.ID))
				require.NoError(t, r.sync(ctx))
				require.NoError(t, r.mirror.Check())
			}
			for _, r := range s {
				require.NoError(t, r.sync(ctx))
				u, err := r.Usage(ctx)
				require.NoError(t, err)
				assert.Zero(t, u.Total())
			}
		})
	}
}

// The machine that Redis runs on may have its clock put right, and a failover
// may lead to a clock that is behind.
func TestClockOfRedisThatGoesBackEndsNoLease(t *testing.T) {
	server := redistest.Start(t)
	o, _, err := ParseURL(server.URL())
	require.NoError(t, err)
	s := Open(Config{Options: o, Prefix: "back", Window: time.Minute, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)})
	defer func() { _ = s.Close() }()
	s.Offer(fleet(1, 1))
	held, err := s.Acquire(t.Context(), anyProxy())
	require.NoError(t, err)

	s.mu.Lock()
	ahead := answer{status: statusOK, now: s.time.now().Add(time.Hour)}
	s.mu.Unlock()
	s.absorb(ahead) // as if its clock had been an hour ahead for a moment
	got, err := s.Get(t.Context(), held.ID)
	require.NoError(t, err)
	assert.Equal(t, held, got)
	_, err = s.Acquire(t.Context(), anyProxy())
	var none *lease.NoMatchError
	require.ErrorAs(t, err, &none, "its place is taken")
}

// A Redis that tells nonsense is not asked for ever.
func TestRedisThatCannotBeFollowedIsUnavailable(t *testing.T) {
	server := redistest.Start(t)
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := replicas(t, server, clk, fleet(1, 1), 1)[0]
	s.scripts.sync = goredis.NewScript(`return {'ok', ARGV[1], 'reload'}`)
	require.ErrorIs(t, s.sync(t.Context()), lease.ErrUnavailable)
	require.ErrorIs(t, s.Ready(), lease.ErrUnavailable)
	// Nor is one that says that it granted what it does not have.
	s.scripts = newScripts()
	s.scripts.acquire = goredis.NewScript(`return {'ok', ARGV[1], 'changes', {}}`)
	_, err := s.Acquire(t.Context(), anyProxy())
	require.ErrorIs(t, err, lease.ErrUnavailable)
	s.scripts = newScripts()
	_, err = s.Acquire(t.Context(), anyProxy())
	require.NoError(t, err)
}
