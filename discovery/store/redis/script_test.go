package redis

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis/redistest"
)

// loser deletes all leases in Redis just before a script runs, the next times calls.
type loser struct {
	goredis.Hook
	client *goredis.Client
	key    string
	hash   string
	times  atomic.Int64
}

func (*loser) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (*loser) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (l *loser) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if args := cmd.Args(); len(args) > 1 && args[1] == l.hash && l.times.Add(-1) >= 0 {
			if err := l.client.Del(ctx, l.key+":leases", l.key+":due", l.key+":log").Err(); err != nil {
				return err
			}
		}
		return next(ctx, cmd)
	}
}

// A lease that this replica has cached is never unknown, however often Redis loses it: it
// is restored, or the store is unavailable.
func TestRepeatedLossesForgetNoLease(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client()
	defer func() { _ = c.Close() }()
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := replicas(t, server, clk, fleet(1, 2), 1)[0]
	l, err := s.Acquire(t.Context(), anyProxy())
	require.NoError(t, err)
	// The script is known to Redis by its hash from now on.
	_, err = s.Renew(t.Context(), l.ID, 2*time.Minute)
	require.NoError(t, err)

	hook := &loser{client: c, key: s.key, hash: s.scripts.renew.Hash()}
	s.client.AddHook(hook)
	for _, times := range []int64{1, 3, maxReloads} {
		hook.times.Store(times)
		_, err = s.Renew(t.Context(), l.ID, 10*time.Minute)
		if times < maxReloads {
			require.NoError(t, err, "lost %d times", times)
		} else {
			require.ErrorIs(t, err, lease.ErrUnavailable, "lost %d times", times)
		}
	}
	hook.times.Store(0)
	_, err = s.Renew(t.Context(), l.ID, 10*time.Minute)
	require.NoError(t, err)
}

// When only the slots are left, another replica writes placeholders for the leases. A
// renewal by the replica that has the record restores it.
func TestPlaceholderDoesNotReplaceTheRecord(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client()
	defer func() { _ = c.Close() }()
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := replicas(t, server, clk, fleet(1, 2), 1)[0]
	req := anyProxy()
	req.Target = "shop.example"
	l, err := s.Acquire(t.Context(), req)
	require.NoError(t, err)

	require.NoError(t, c.Del(t.Context(), s.key+":leases", s.key+":due").Err())
	stranger := replicas(t, server, clk, fleet(1, 2), 1)[0]
	_, err = stranger.Acquire(t.Context(), anyProxy())
	require.ErrorIs(t, err, lease.ErrUnavailable, "leases are put back")
	_, err = stranger.Get(t.Context(), l.ID)
	require.NoError(t, err, "its place is known")

	_, err = s.Renew(t.Context(), l.ID, 10*time.Minute)
	require.NoError(t, err)
	got, err := s.Get(t.Context(), l.ID)
	require.NoError(t, err)
	assert.Equal(t, "test", got.Holder)
	assert.Equal(t, "shop.example", got.Target)
	assert.Equal(t, clk.Now().Add(10*time.Minute).UTC(), got.ExpiresAt.UTC())
}
