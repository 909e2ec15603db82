package storetest

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// clients runs n clients at once.
func clients(n int, client func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			client(i)
		})
	}
	close(start)
	wg.Wait()
}

func parallelDistinct(t *testing.T, s *subject) {
	fleet := proxies(100, 1)
	var got sync.Map
	clients(100, func(int) {
		l, err := s.store.Acquire(t.Context(), request("", fleet...))
		if !assert.NoError(t, err) {
			return
		}
		_, twice := got.LoadOrStore(l.Proxy, true)
		assert.False(t, twice, "%s leased twice", l.Proxy)
	})
	assert.Equal(t, 100, s.total())
	assert.Equal(t, 100, s.refused("", fleet...).AtCapacity)
}

// parallelCapacity has clients count the holders of each proxy: up after a
// grant, down before a release, so that more holders than maxLeases can only
// come from too many grants.
func parallelCapacity(t *testing.T, s *subject) {
	const nClients, rounds, maxLeases = 300, 20, 3
	fleet := proxies(10, maxLeases)
	holders := map[string]*atomic.Int64{}
	for _, c := range fleet {
		holders[c.Proxy] = &atomic.Int64{}
	}
	var granted, refused atomic.Int64
	clients(nClients, func(i int) {
		for round := range rounds {
			l, err := s.store.Acquire(t.Context(), request("", fleet...))
			if isNoMatch(err) {
				refused.Add(1)
				runtime.Gosched()
				continue
			}
			if !assert.NoError(t, err) {
				return
			}
			granted.Add(1)
			n := holders[l.Proxy].Add(1)
			assert.LessOrEqual(t, n, int64(maxLeases), "%s has %d holders", l.Proxy, n)
			runtime.Gosched()
			assert.NoError(t, s.store.Report(t.Context(), l.ID, lease.Report{Result: lease.ResultOK}))
			if i%30 == 0 && round == 0 {
				continue // some keep their first lease for good
			}
			holders[l.Proxy].Add(-1)
			assert.NoError(t, s.store.Release(t.Context(), l.ID))
		}
	})
	assert.Positive(t, granted.Load())
	assert.Positive(t, refused.Load(), "the test must reach the limit")
	assert.LessOrEqual(t, s.total(), nClients/30, "all others are released")
}

func parallelRelease(t *testing.T, s *subject) {
	c := proxy(1, 3)
	first := s.acquire("", c)
	s.acquire("", c)
	s.acquire("", c)
	clients(100, func(int) { assert.NoError(t, s.store.Release(t.Context(), first.ID)) })
	assert.Equal(t, 2, s.active(c.Instance))
	var granted atomic.Int64
	clients(100, func(int) {
		if _, err := s.store.Acquire(t.Context(), request("", c)); err == nil {
			granted.Add(1)
		}
	})
	assert.EqualValues(t, 1, granted.Load())
}
