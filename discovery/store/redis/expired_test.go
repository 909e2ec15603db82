package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis/redistest"
)

// Nothing but what runs is kept of a flood of short leases, beyond the limit.
func TestRedisForgetsTheFirstOfManyThatExpire(t *testing.T) {
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
		assert.Zero(t, r.Losses(), "what is forgotten is not lost")
		require.NoError(t, r.mirror.Check())
	}
}

// Of a lease that has expired Redis keeps what a late report needs and what its holder
// is told, whoever asks.
func TestRedisCutsTheRecordsOfExpiredLeasesShort(t *testing.T) {
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
