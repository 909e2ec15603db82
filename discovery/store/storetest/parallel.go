package storetest

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	s.fleet(fleet...)
	var got sync.Map
	clients(100, func(int) {
		l, err := s.store.Acquire(t.Context(), request(""))
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
	const nClients, rounds, maxLeases = 300, 6, 3
	fleet := proxies(10, maxLeases)
	s.fleet(fleet...)
	holders := map[string]*atomic.Int64{}
	for _, c := range fleet {
		holders[c.Proxy] = &atomic.Int64{}
	}
	var granted, refused atomic.Int64
	clients(nClients, func(i int) {
		for round := range rounds {
			l, err := s.store.Acquire(t.Context(), request(""))
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
		if _, err := s.store.Acquire(t.Context(), request("")); err == nil {
			granted.Add(1)
		}
	})
	assert.EqualValues(t, 1, granted.Load())
}

// parallelKeys has clients send the same requests at the same time.
func parallelKeys(t *testing.T, s *subject) {
	s.fleet(proxies(20, 9)...)
	var mu sync.Mutex
	ids, granted := map[string]string{}, 0
	clients(64, func(int) {
		for round := range 10 {
			req := request("")
			req.Key, req.Fingerprint = string(rune('a'+round)), "same"
			l, err := s.store.Acquire(t.Context(), req)
			if !assert.NoError(t, err) {
				return
			}
			mu.Lock()
			if !l.Replayed {
				granted++
			}
			if id, ok := ids[req.Key]; ok {
				assert.Equal(t, id, l.ID)
			}
			ids[req.Key] = l.ID
			mu.Unlock()
		}
	})
	assert.Equal(t, 10, granted)
	assert.Equal(t, 10, s.total())
}

// parallelEverything is for the race detector, and ends with nothing left over.
func parallelEverything(t *testing.T, s *subject) {
	fleet := proxies(8, 10)
	s.fleet(fleet...)
	clients(64, func(i int) {
		for round := range 20 {
			if i == 0 {
				s.store.Offer(lease.Offers{Changed: []*lease.Offer{{Candidate: *fleet[round%8], Leasable: true}}})
			}
			req := request("")
			req.Session = string(rune('a' + i%5))
			l, err := s.store.Acquire(t.Context(), req)
			if isNoMatch(err) {
				continue
			}
			if !assert.NoError(t, err) {
				return
			}
			_, err = s.store.Renew(t.Context(), l.ID, time.Hour)
			assert.NoError(t, err)
			got, err := s.store.Get(t.Context(), l.ID)
			assert.NoError(t, err)
			assert.Equal(t, l.FencingToken, got.FencingToken)
			assert.NoError(t, s.store.Report(t.Context(), l.ID, lease.Report{Result: lease.ResultOK}))
			assert.NoError(t, s.store.Release(t.Context(), l.ID))
			_, err = s.store.Usage(t.Context())
			assert.NoError(t, err)
			assert.NoError(t, s.store.Ready())
			s.store.Freed()
			s.store.Changed()
		}
	})
	assert.Zero(t, s.total())
}
