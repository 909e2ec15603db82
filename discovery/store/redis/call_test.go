package redis

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis/redistest"
)

// Every grant, renewal, release and report that was answered is there after
// Redis was killed, in every replica.
func TestKilledRedisLosesNothingThatWasAnswered(t *testing.T) {
	server := redistest.Start(t, "appendonly yes", "appendfsync always")
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	stores := replicas(t, server, clk, fleet(20, 50_000), 2) // never full, however late the kill
	var mu sync.Mutex
	held, released := map[string]lease.Lease{}, map[string]bool{}
	var wg sync.WaitGroup
	for c := range 16 {
		wg.Go(func() {
			s := stores[c%2]
			for i := 0; ; i++ {
				l, err := s.Acquire(t.Context(), anyProxy())
				if err != nil {
					assert.ErrorIs(t, err, lease.ErrUnavailable)
					return
				}
				if i%3 > 0 {
					mu.Lock()
					held[l.ID] = l
					mu.Unlock()
					continue
				}
				if s.Release(t.Context(), l.ID) == nil {
					mu.Lock()
					released[l.ID] = true
					mu.Unlock()
				}
			}
		})
	}
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(held) > 100 }, 30*time.Second, time.Millisecond)
	require.NoError(t, server.Kill())
	wg.Wait()
	require.Error(t, stores[0].Ready())
	_, err := stores[0].Acquire(t.Context(), anyProxy())
	require.ErrorIs(t, err, lease.ErrUnavailable)
	require.NoError(t, server.Start(t.Context()))

	for _, s := range append(stores, openLocal(t, server, t.Name(), clk)) {
		s.Offer(fleet(20, 50_000))
		for id, l := range held {
			got, err := s.Get(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, l, got)
		}
		for id := range released {
			_, err := s.Get(t.Context(), id)
			require.ErrorIs(t, err, lease.ErrUnknown)
		}
		assert.NoError(t, s.Ready(), "without a restart")
	}
}

// A canceled Acquire may have been granted a lease that its client never received.
func TestLeaseOfCanceledAcquireIsReleased(t *testing.T) {
	t.Parallel() // it waits for timeouts
	server := redistest.Start(t)
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	cfg := localFor(t, server, t.Name(), clk)
	cfg.callTimeout = time.Second // each call to the paused Redis takes all of it
	s := Open(cfg)
	defer func() { require.NoError(t, s.Close()) }()
	s.Offer(fleet(1, 1))
	require.NoError(t, s.sync(t.Context()))
	for _, key := range []string{"", "key"} {
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, server.Signal(syscall.SIGSTOP))
		go func() {
			for !hasPending(s) {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(20 * time.Millisecond) // until it is on its way; none would be fine, too
			cancel()
		}()
		req := anyProxy()
		req.Key = key
		_, err := s.Acquire(ctx, req)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, server.Signal(syscall.SIGCONT))

		if key != "" {
			l, err := s.Acquire(t.Context(), req)
			require.NoError(t, err, "the same request gets it")
			require.NoError(t, s.Release(t.Context(), l.ID))
			continue
		}
		require.NoError(t, s.sync(t.Context()))
		s.releaseUnused(t.Context())
		l, err := s.Acquire(t.Context(), req)
		require.NoError(t, err, "its place is free again")
		require.NoError(t, s.Release(t.Context(), l.ID))
	}
	assert.Empty(t, s.unused)
}

func hasPending(s *Store) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending) > 0
}

func TestOutageOfRedisIsLoggedOnce(t *testing.T) {
	server := redistest.Start(t)
	require.NoError(t, server.Kill())
	var log bytes.Buffer
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := openLocal(t, server, "ready", clk)
	s.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	s.Offer(fleet(1, 1))
	require.ErrorIs(t, s.Ready(), lease.ErrUnavailable)
	for range 3 {
		s.poll(t.Context())
		require.ErrorContains(t, s.Ready(), "Redis")
	}
	_, err := s.Usage(t.Context())
	require.ErrorIs(t, err, lease.ErrUnavailable)
	require.NoError(t, server.Start(t.Context()))
	for range 3 {
		s.poll(t.Context())
		require.NoError(t, s.Ready())
	}
	assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("Redis is unavailable")), log.String())
	assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("Redis is available")), log.String())
}

// A Redis that cannot write must not have anything granted.
func TestReadOnlyRedisGrantsNothing(t *testing.T) {
	server := redistest.Start(t)
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := replicas(t, server, clk, fleet(1, 5), 1)[0]
	c := server.Client()
	defer func() { _ = c.Close() }()
	require.NoError(t, c.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	_, err := s.Acquire(t.Context(), anyProxy())
	require.ErrorIs(t, err, lease.ErrUnavailable)
	require.NoError(t, c.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
	_, err = s.Acquire(t.Context(), anyProxy())
	require.NoError(t, err)
	u, err := s.Usage(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, u.Total())
}

// A user of Redis without the rights is a wrong configuration and no corrupt data.
func TestForbiddenCommandIsNotTakenForCorruptData(t *testing.T) {
	server := redistest.Start(t)
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := replicas(t, server, clk, fleet(1, 5), 1)[0]
	held, err := s.Acquire(t.Context(), anyProxy())
	require.NoError(t, err)
	var log bytes.Buffer
	s.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	c := server.Client()
	defer func() { _ = c.Close() }()
	require.NoError(t, c.Do(t.Context(), "ACL", "SETUSER", "default", "-zadd").Err())
	_, err = s.Acquire(t.Context(), anyProxy())
	require.ErrorIs(t, err, lease.ErrUnavailable)
	assert.ErrorContains(t, err, "grant its user all commands on the keys {")
	assert.NotContains(t, log.String(), "corrupt")
	require.NoError(t, c.Do(t.Context(), "ACL", "SETUSER", "default", "+zadd").Err())
	_, err = s.Renew(t.Context(), held.ID, time.Hour)
	require.NoError(t, err)
	_, err = s.Acquire(t.Context(), anyProxy())
	require.NoError(t, err, "and what the broken script has left behind is repaired")
}

// In production Redis's clock decides.
func TestExpiryFollowsTheClockOfRedis(t *testing.T) {
	server := redistest.Start(t)
	// This replica's clock is an hour off.
	ahead := clocktesting.NewFakeClock(time.Now().Add(time.Hour))
	skewed := Open(configFor(t, server, "time", ahead))
	right := Open(configFor(t, server, "time", clock.RealClock{}))
	defer func() { _, _ = skewed.Close(), right.Close() }()
	skewed.Offer(fleet(1, 1))
	right.Offer(fleet(1, 1))

	before := time.Now()
	req := anyProxy()
	l, err := skewed.Acquire(t.Context(), req)
	require.NoError(t, err)
	assert.WithinRange(t, l.ExpiresAt, before.Add(req.TTL).Truncate(time.Microsecond), time.Now().Add(req.TTL))
	_, err = right.Acquire(t.Context(), req)
	require.Error(t, err, "the place is taken")
	require.NoError(t, skewed.Release(t.Context(), l.ID))

	req.TTL = 300 * time.Millisecond
	l, err = skewed.Acquire(t.Context(), req)
	require.NoError(t, err)
	require.Eventually(t, func() bool { _, err := right.Acquire(t.Context(), req); return err == nil }, 10*time.Second, 5*time.Millisecond)
	assert.False(t, time.Now().Before(l.ExpiresAt), "a TTL is not cut short")
}

func TestParseURL(t *testing.T) {
	good := map[string]string{
		"redis://localhost:6379/3":                   "egress-proxies",
		"rediss://user:secret@cache.example:6380":    "egress-proxies",
		"unix:///run/redis/redis.sock?db=2":          "egress-proxies",
		"redis://localhost?prefix=blue":              "blue",
		"redis://localhost?db=1&prefix=blue&x=":      "",
		"redis://localhost?dial_timeout=1s&prefix=b": "b",
	}
	for url, want := range good {
		_, prefix, err := ParseURL(url)
		if want == "" {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err, url)
		assert.Equal(t, want, prefix)
	}
	for _, url := range []string{
		"", "localhost:6379", "http://canary-secret@localhost",
		"redis://:canary-secret@localhost/notanumber", "redis://:canary-secret@localhost?prefix=", "redis://:canary-secret@localhost?prefix=%7B",
		"redis://:canary-secret@localhost?no_such=1", "redis://:canary-secret@loc alhost\x7f",
	} {
		_, _, err := ParseURL(url)
		require.Error(t, err, url)
		assert.NotContains(t, err.Error(), "canary")
	}
}
