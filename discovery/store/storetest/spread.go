package storetest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

func fairness(t *testing.T, s *subject) {
	fleet := proxies(50, 100_000)
	s.fleet(fleet...)
	clients(50, func(int) {
		for range 40 {
			_, err := s.store.Acquire(t.Context(), request(""))
			assert.NoError(t, err)
		}
	})
	for _, c := range fleet {
		require.Equal(t, 40, s.active(c.Instance))
	}
}

// fairnessOneByOne leases as clients do that hold one lease at a time: at each
// grant no proxy has any lease.
func fairnessOneByOne(t *testing.T, s *subject) {
	s.fleet(proxies(50, 5)...)
	granted := map[string]int{}
	for range 1_000 {
		l := s.grant(request(""))
		granted[l.Proxy]++
		s.release(l.ID)
	}
	require.Len(t, granted, 50)
	for p, n := range granted {
		require.Equal(t, 20, n, p)
	}
}

// oneFast is a fleet in which one proxy answers in a third of the others' time.
func oneFast(s *subject) []*lease.Candidate {
	fleet := proxies(6, 100)
	for _, c := range fleet {
		c.LatencyMillis = 45
	}
	fleet[3].LatencyMillis = 16
	s.fleet(fleet...)
	return fleet
}

// assertSpread wants the proxies' shares to differ by a tenth at most.
func assertSpread(t *testing.T, granted map[string]int, fleet []*lease.Candidate) {
	t.Helper()
	most, total := 0, 0
	for _, c := range fleet {
		most, total = max(most, granted[c.Proxy]), total+granted[c.Proxy]
	}
	mean := float64(total) / float64(len(fleet))
	assert.LessOrEqual(t, float64(most)/mean, 1.1, "%v", granted)
}

func latencyIsNoOrder(t *testing.T, s *subject) {
	fleet, granted := oneFast(s), map[string]int{}
	for range 600 {
		l := s.grant(request("shop.example"))
		granted[l.Proxy]++
		s.release(l.ID)
	}
	assertSpread(t, granted, fleet)
}

// latencyIsNoOrderWhileHeld has 64 clients that hold their leases for a while, and
// release them in any order.
func latencyIsNoOrderWhileHeld(t *testing.T, s *subject) {
	fleet, granted := oneFast(s), map[string]int{}
	var held []string
	for range 600 {
		if len(held) == 64 {
			i := rand.IntN(4) // about the oldest
			s.release(held[i])
			held = slices.Delete(held, i, i+1)
		}
		l := s.grant(request("shop.example"))
		granted[l.Proxy]++
		held = append(held, l.ID)
	}
	assertSpread(t, granted, fleet)
}

// newProxyShare adds a proxy to a fleet at work: it gets one turn of each round, and
// while leases are held as many as the others hold.
func newProxyShare(t *testing.T, s *subject) {
	fleet := oneFast(s)
	turn := func() string {
		l := s.grant(request(""))
		s.release(l.ID)
		return l.Proxy
	}
	for range 60 {
		turn()
	}
	fresh := proxy(9, 100)
	fresh.LatencyMillis = 1
	fleet = append(fleet, fresh)
	s.fleet(fleet...)
	granted := map[string]int{}
	for range 70 {
		granted[turn()]++
	}
	for _, c := range fleet {
		assert.Equal(t, 10, granted[c.Proxy], c.Proxy)
	}
	s.fleet(fleet[:6]...)
	for range 24 {
		s.grant(request(""))
	}
	s.fleet(fleet...)
	for range 11 {
		s.grant(request(""))
	}
	for _, c := range fleet {
		assert.Equal(t, 5, s.active(c.Instance), c.Proxy)
	}
}

func excludedShare(t *testing.T, s *subject) {
	fleet, granted := oneFast(s), map[string]int{}
	req := request("shop.example")
	req.Exclude = []string{fleet[0].Proxy}
	for i := range 600 {
		r := req
		if i%2 == 0 { // clients that exclude nothing use all in turn
			r = request("other.example")
		}
		l := s.grant(r)
		granted[l.Proxy]++
		s.release(l.ID)
	}
	assertSpread(t, granted, fleet[1:])
	require.Positive(t, granted[fleet[0].Proxy])
}
