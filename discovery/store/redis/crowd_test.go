package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis/redistest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

const crowdProxies, crowdMaxLeases, crowdClients = 8, 3, 32

// crowd is clients of three replicas that lease, use and release all the time, and check
// what they were promised.
type crowd struct {
	*testing.T
	stores  []*Store
	holders [crowdProxies]atomic.Int64
	grants  atomic.Int64
	stop    chan struct{}
	wg      sync.WaitGroup
	// unfollow ends the replicas' following of Redis, and returns when it has ended.
	unfollow func()
}

func startCrowd(t *testing.T, server *redistest.Server) *crowd {
	t.Helper()
	c := &crowd{T: t, stop: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	c.unfollow = func() { cancel(); running.Wait() }
	for range 3 {
		s := Open(configFor(t, server, "crowd", clock.RealClock{}))
		s.Offer(fleet(crowdProxies, crowdMaxLeases))
		running.Go(func() { _ = s.Run(ctx) })
		c.stores = append(c.stores, s)
	}
	t.Cleanup(func() {
		c.unfollow()
		for _, s := range c.stores {
			_ = s.Close()
		}
	})
	for i := range crowdClients {
		c.wg.Go(func() { c.crawl(c.stores[i%3], rand.New(rand.NewPCG(uint64(i), 1))) })
	}
	return c
}

// crawl is one client.
func (c *crowd) crawl(s *Store, rnd *rand.Rand) {
	for {
		select {
		case <-c.stop:
			return
		default:
		}
		l, err := s.Acquire(c.Context(), anyProxy())
		var none *lease.NoMatchError
		if errors.As(err, &none) || errors.Is(err, lease.ErrUnavailable) {
			time.Sleep(time.Duration(1+rnd.IntN(10)) * time.Millisecond)
			continue
		}
		if !assert.NoError(c, err) {
			return
		}
		c.use(s, l, rnd)
	}
}

// use holds a lease for a while and gives it back.
func (c *crowd) use(s *Store, l lease.Lease, rnd *rand.Rand) {
	var proxy int
	_, _ = fmt.Sscanf(l.Proxy, "crawl/proxy-%d", &proxy)
	assert.LessOrEqual(c, c.holders[proxy].Add(1), int64(crowdMaxLeases), "holders of %s", l.Proxy)
	c.grants.Add(1)
	time.Sleep(time.Duration(rnd.IntN(30)) * time.Millisecond)
	if rnd.IntN(10) == 0 { // a long one, that lives through what happens
		time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
	}
	c.insist(func() error { _, err := s.Renew(c.Context(), l.ID, time.Minute); return err })
	c.holders[proxy].Add(-1)
	c.insist(func() error { return s.Release(c.Context(), l.ID) })
}

// insist retries until the store is available.
func (c *crowd) insist(call func() error) {
	for {
		err := call()
		if errors.Is(err, lease.ErrUnavailable) {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		assert.NoError(c, err, "a held lease is lost")
		return
	}
}

// more waits for grants.
func (c *crowd) more(n int64) {
	c.Helper()
	want := c.grants.Load() + n
	require.Eventually(c, func() bool { return c.grants.Load() >= want || c.Failed() }, 2*time.Minute, time.Millisecond, "nothing is granted")
}

func (c *crowd) end() {
	close(c.stop)
	c.wg.Wait()
	c.unfollow() // the mirrors are this test's alone
	for _, s := range c.stores {
		require.NoError(c, s.sync(c.Context()))
		require.NoError(c, s.mirror.Check())
		require.NoError(c, s.Ready())
	}
}

func TestFlushallUnderLoad(t *testing.T) {
	t.Parallel() // like the other crowds, it mostly waits for recovery
	server := redistest.Start(t)
	client := server.Client()
	defer func() { _ = client.Close() }()
	c := startCrowd(t, server)
	for range 2 {
		c.more(200)
		require.NoError(t, client.FlushAll(t.Context()).Err())
	}
	c.more(200)
	c.end()
	for _, s := range c.stores {
		assert.GreaterOrEqual(t, s.Losses(), uint64(2))
	}
}

// TestEvictionUnderLoad has Redis run with a policy that it should not have, and
// out of memory: it drops our keys one by one.
func TestEvictionUnderLoad(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	defer func() { _ = client.Close() }()
	c := startCrowd(t, server)
	c.more(100)
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-random").Err())
	info, err := client.InfoMap(t.Context(), "memory").Result()
	require.NoError(t, err)
	var used int
	_, err = fmt.Sscan(info["Memory"]["used_memory"], &used)
	require.NoError(t, err)
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", fmt.Sprint(used+1<<20)).Err())
	evicted := func() (n int) {
		info, err := client.InfoMap(t.Context(), "stats").Result()
		require.NoError(t, err)
		_, err = fmt.Sscan(info["Stats"]["evicted_keys"], &n)
		require.NoError(t, err)
		return n
	}
	for i := 0; evicted() < 20 && i < 100_000; i++ {
		require.NoError(t, client.Set(t.Context(), fmt.Sprint("noise-", i), strings.Repeat("x", 100_000), 0).Err())
	}
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.Eventually(t, func() bool { return c.stores[0].Losses() > 0 }, time.Minute, time.Millisecond, "none of ours was dropped")
	c.more(100)
	c.end()
}

// TestFailoverUnderLoad promotes a copy that was behind when the first one died.
func TestFailoverUnderLoad(t *testing.T) {
	t.Parallel()
	host := controlplanetest.Addr()
	first := redistest.Start(t, "bind "+host, "port "+followed, "repl-diskless-sync-delay 0")
	second := redistest.Start(t, "replicaof "+host+" "+followed)
	standby := second.Client()
	defer func() { _ = standby.Close() }()
	require.Eventually(t, func() bool {
		info, err := standby.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	}, 20*time.Second, 10*time.Millisecond)
	c := startCrowd(t, first)
	c.more(200)
	require.NoError(t, standby.ReplicaOf(t.Context(), "no", "one").Err())
	c.more(50) // of these it hears nothing
	require.NoError(t, first.Kill())
	require.NoError(t, os.Rename(second.Socket(), first.Socket()))
	c.more(200)
	c.end()
	for _, s := range c.stores {
		assert.Positive(t, s.Losses())
	}
}

// followed is the port of a Redis that another one follows, at an address of its own:
// a port that is free now may be taken a moment later.
const followed = "16379"

// Replicas take turns on the same proxies: each learns of the other's grants with
// every answer of Redis. One proxy is faster than the others.
func TestReplicasSpreadTheirLeases(t *testing.T) {
	server := redistest.Start(t)
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	offers := fleet(6, 100)
	for i, o := range offers.Changed {
		o.LatencyMillis = int64(16 + 29*min(i, 1))
	}
	stores, granted := replicas(t, server, clk, offers, 2), map[string]int{}
	for i := range 600 {
		s := stores[i/7%2]
		l, err := s.Acquire(t.Context(), anyProxy())
		require.NoError(t, err)
		require.NoError(t, s.Release(t.Context(), l.ID))
		granted[l.Proxy]++
	}
	require.Len(t, granted, 6)
	for proxy, n := range granted {
		assert.LessOrEqual(t, n, 110, proxy)
	}
}
