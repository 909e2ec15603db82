package redis

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis/redistest"
)

// Data that the scripts accept and replicas cannot read is deleted. Otherwise replicas
// would repair it in turns forever.
func TestDataThatReplicasCannotReadIsDeleted(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client()
	defer func() { _ = c.Close() }()
	for name, garbage := range map[string][3]string{
		"a lease without end":            {":leases", "id", `99999999999999999999 7 1700000000000000 60000000 6 3:uidi {"proxy":"a/b"}`},
		"a lease of no instance":         {":leases", "id", `1800000900000000 7 1700000000000000 60000000 3 uid {"proxy":"a/b"}`},
		"a lease with half of its rest":  {":leases", "id", `1800000900000000 7 1700000000000000 60000000 6 3:uidi {"proxy":"a`},
		"a session without a holder":     {":sessions", "6", "1800000900000000 3:uidi"},
		"a session without an instance":  {":sessions", "1:hs", "1800000900000000 3:ui"},
		"a cooldown of no proxy":         {":cooling", "-1", "1800000900000000"},
		"a cooldown that does not end":   {":cooling", "3:uidt", "99999999999999999999"},
		"a cooldown under a binary name": {":cooling", "\xff\x00", "1800000900000000"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
			s := replicas(t, server, clk, fleet(3, 2), 2)
			for _, r := range s {
				require.NoError(t, r.sync(ctx))
			}
			require.NoError(t, c.HSet(ctx, s[0].key+garbage[0], garbage[1], garbage[2]).Err())
			for range 3 {
				for _, r := range s {
					r.poll(ctx)
					require.NoError(t, r.Ready())
				}
			}
			clk.Step(recovery)
			losses := s[0].Losses() + s[1].Losses()
			for _, r := range s {
				_, err := r.Acquire(ctx, anyProxy())
				require.NoError(t, err)
			}
			assert.Equal(t, losses, s[0].Losses()+s[1].Losses(), "no repair in turns")
			there, err := c.HExists(ctx, s[0].key+garbage[0], garbage[1]).Result()
			require.NoError(t, err)
			assert.False(t, there, "it is deleted")
		})
	}
}

// Records are lost that no replica has cached. Their slots stay taken, and
// all replicas must see that.
func TestSlotsOfLostRecordsStayTaken(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client()
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := replicas(t, server, clk, fleet(2, 2), 3)
	var held []lease.Lease
	for range 3 {
		l, err := s[0].Acquire(ctx, anyProxy())
		require.NoError(t, err)
		held = append(held, l)
	}
	require.NoError(t, c.Del(ctx, s[0].key+":leases").Err())
	_, err := s[1].Acquire(ctx, anyProxy())
	require.ErrorIs(t, err, lease.ErrUnavailable, "a replica might put them back")
	clk.Step(recovery)
	l, err := s[1].Acquire(ctx, anyProxy())
	require.NoError(t, err)
	assert.Equal(t, held[1].Proxy, l.Proxy, "the one with a place")
	for _, r := range s[1:] {
		_, err = r.Acquire(ctx, anyProxy())
		var none *lease.NoMatchError
		require.ErrorAs(t, err, &none)
		assert.Equal(t, 2, none.AtCapacity)
		require.NoError(t, r.mirror.Check())
	}

	// A replica that has them cached comes back.
	s[0].poll(ctx)
	for _, l := range held {
		got, err := s[2].Get(ctx, l.ID)
		require.NoError(t, err)
		assert.Equal(t, l, got)
	}
}
