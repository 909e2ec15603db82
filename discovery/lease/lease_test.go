package lease

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func candidate(name string, latency int64) *Candidate {
	return &Candidate{Proxy: name, LatencyMillis: latency}
}

func TestCompare(t *testing.T) {
	tests := map[string]struct {
		a, b             *Candidate
		activeA, activeB int
		want             int
	}{
		"fewest leases":                         {candidate("b", 90), candidate("a", 10), 1, 2, -1},
		"then latency":                          {candidate("b", 10), candidate("a", 90), 2, 2, -1},
		"then name":                             {candidate("a", 10), candidate("b", 10), 2, 2, -1},
		"measured before unknown":               {candidate("b", 9_000), candidate("a", UnknownLatency), 0, 0, -1},
		"0 ms is a measurement":                 {candidate("b", 0), candidate("a", 1), 0, 0, -1},
		"unknown with fewer leases":             {candidate("b", UnknownLatency), candidate("a", 1), 0, 1, -1},
		"the same":                              {candidate("a", 1), candidate("a", 1), 1, 1, 0},
		"namespaces are names":                  {candidate("a/z", 1), candidate("b/a", 1), 0, 0, -1},
		"two unknown ones are told by the name": {candidate("a", UnknownLatency), candidate("b", UnknownLatency), 0, 0, -1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, Compare(tt.a, tt.activeA, tt.b, tt.activeB))
			assert.Equal(t, -tt.want, Compare(tt.b, tt.activeB, tt.a, tt.activeA))
		})
	}
}

// TestCompareIsAnOrder: no cycles, so that the choice does not depend on the
// order of the candidates.
func TestCompareIsAnOrder(t *testing.T) {
	pick := func() (*Candidate, int) {
		return candidate(string(rune('a'+rand.IntN(3))), int64(rand.IntN(3))), rand.IntN(3)
	}
	for range 5_000 {
		a, na := pick()
		b, nb := pick()
		c, nc := pick()
		ab, bc, ac := Compare(a, na, b, nb), Compare(b, nb, c, nc), Compare(a, na, c, nc)
		require.Equal(t, -ab, Compare(b, nb, a, na))
		if ab <= 0 && bc <= 0 {
			require.LessOrEqual(t, ac, 0)
		}
		if ab == 0 {
			require.Equal(t, bc, ac)
		}
	}
}

func TestStats(t *testing.T) {
	var s Stats
	assert.True(t, s.FreeAt().IsZero())
	at := func(minutes int) time.Time { return time.Unix(0, 0).Add(time.Duration(minutes) * time.Minute) }

	s.CountAtCapacity(time.Time{})
	assert.True(t, s.FreeAt().IsZero(), "one that never frees by itself frees nothing")
	s.CountAtCapacity(at(9))
	s.CountAtCapacity(at(7))
	s.CountAtCapacity(at(8))
	s.CountAtCapacity(time.Time{})
	assert.Equal(t, 5, s.AtCapacity)
	assert.Equal(t, at(7), s.CapacityFreeAt)
	assert.Equal(t, at(7), s.FreeAt())

	s.CountInCooldown(at(8))
	assert.Equal(t, at(7), s.FreeAt())
	s.CountInCooldown(at(3))
	s.CountInCooldown(at(4))
	assert.Equal(t, 3, s.InCooldown)
	assert.Equal(t, at(3), s.CooldownEndsAt)
	assert.Equal(t, at(3), s.FreeAt())
}

func TestNoMatchErrorNamesItsCounts(t *testing.T) {
	err := &NoMatchError{Stats{Considered: 5, AtCapacity: 2, InCooldown: 3}}
	assert.EqualError(t, err, "no proxy to lease: 5 considered, 2 at capacity, 3 in cooldown")
}

func TestResults(t *testing.T) {
	cools := map[Result]bool{ResultOK: false, ResultRateLimited: true, ResultBanned: true}
	require.Len(t, Results(), len(cools), "a new result needs a decision")
	for _, r := range Results() {
		assert.True(t, r.Known())
		assert.Equal(t, cools[r], r.Cools(), "%s", r)
	}
	for _, r := range []Result{"", "OK", "captcha", "ok "} {
		assert.False(t, r.Known())
		assert.False(t, r.Cools())
	}
}

func TestUsageTotal(t *testing.T) {
	assert.Zero(t, Usage{}.Total())
	u := Usage{Active: map[Instance]int{{ProxyUID: "a", ID: "1"}: 2, {ProxyUID: "a", ID: "2"}: 1, {ProxyUID: "b"}: 4}}
	assert.Equal(t, 7, u.Total())
}
