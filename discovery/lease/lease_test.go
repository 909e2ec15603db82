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
		lastA, lastB     uint64
		want             int
	}{
		"fewest leases":                         {candidate("b", 90), candidate("a", 10), 1, 2, 7, 0, -1},
		"then who was granted longest ago":      {candidate("b", 90), candidate("a", 10), 2, 2, 6, 7, -1},
		"never is longest":                      {candidate("b", 90), candidate("a", 10), 2, 2, 0, 7, -1},
		"then latency":                          {candidate("b", 10), candidate("a", 90), 2, 2, 0, 0, -1},
		"then name":                             {candidate("a", 10), candidate("b", 10), 2, 2, 7, 7, -1},
		"measured before unknown":               {candidate("b", 9_000), candidate("a", UnknownLatency), 0, 0, 0, 0, -1},
		"0 ms is a measurement":                 {candidate("b", 0), candidate("a", 1), 0, 0, 0, 0, -1},
		"a factor of two is a difference":       {candidate("b", 16), candidate("a", 32), 0, 0, 0, 0, -1},
		"less is none":                          {candidate("a", 31), candidate("b", 16), 0, 0, 0, 0, -1},
		"unknown with fewer leases":             {candidate("b", UnknownLatency), candidate("a", 1), 0, 1, 7, 0, -1},
		"the same":                              {candidate("a", 1), candidate("a", 1), 1, 1, 0, 0, 0},
		"namespaces are names":                  {candidate("a/z", 1), candidate("b/a", 1), 0, 0, 0, 0, -1},
		"two unknown ones are told by the name": {candidate("a", UnknownLatency), candidate("b", UnknownLatency), 0, 0, 0, 0, -1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a, b := Standing{tt.a, tt.activeA, tt.lastA}, Standing{tt.b, tt.activeB, tt.lastB}
			assert.Equal(t, tt.want, Compare(a, b))
			assert.Equal(t, -tt.want, Compare(b, a))
		})
	}
}

// TestCompareIsAnOrder: no cycles, so that the choice does not depend on the
// order of the candidates.
func TestCompareIsAnOrder(t *testing.T) {
	pick := func() Standing {
		return Standing{candidate(string(rune('a'+rand.IntN(3))), int64(rand.IntN(5))), rand.IntN(3), uint64(rand.IntN(3))}
	}
	for range 5_000 {
		a, b, c := pick(), pick(), pick()
		ab, bc, ac := Compare(a, b), Compare(b, c), Compare(a, c)
		require.Equal(t, -ab, Compare(b, a))
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

func TestReports(t *testing.T) {
	const window = 10 * time.Minute
	type cooldown struct {
		target string
		length time.Duration
	}
	tests := map[Result]map[Report]cooldown{ // by a report's target
		ResultOK: {{Target: "t"}: {}, {}: {}},
		ResultRateLimited: {
			{Target: "t"}: {"t", window}, {}: {"leased", window},
			{RetryAfter: 7 * time.Second}: {"leased", 7 * time.Second}, {Target: "t", RetryAfter: MaxRetryAfter + 1}: {"t", MaxRetryAfter},
		},
		ResultBanned:        {{Target: "t"}: {"t", window}, {}: {"leased", window}, {RetryAfter: 7 * time.Second}: {"leased", 7 * time.Second}},
		ResultCaptcha:       {{Target: "t"}: {"t", window}, {}: {"leased", window}},
		ResultTargetTimeout: {{Target: "t"}: {}, {}: {}},
		ResultProxyTimeout:  {{Target: "t"}: {"", 30 * time.Second}, {}: {"", 30 * time.Second}},
		ResultConnectError:  {{Target: "t"}: {"", 30 * time.Second}, {}: {"", 30 * time.Second}},
		ResultTargetUnreachable: {
			{Target: "t"}: {"t", 30 * time.Second}, {}: {"leased", 30 * time.Second}, {Target: "t", RetryAfter: time.Second}: {"t", 30 * time.Second},
		},
		"nonsense": {{}: {}},
	}
	require.Len(t, tests, len(Results())+1, "a new result needs a decision")
	for result, reports := range tests {
		assert.Equal(t, result != "nonsense", result.Known())
		for rep, want := range reports {
			rep.Result = result
			target, length := rep.Cooldown("leased", window)
			assert.Equal(t, want, cooldown{target, length}, "%v", rep)
		}
	}
	target, length := Report{Result: ResultBanned}.Cooldown("", window)
	assert.Equal(t, cooldown{"", window}, cooldown{target, length}, "no target at all: all targets")
	target, length = Report{Result: ResultTargetUnreachable}.Cooldown("", window)
	assert.Equal(t, cooldown{}, cooldown{target, length}, "an unnamed target rests no proxy for the others")
	for _, r := range Results() {
		_, length = Report{Result: r, Target: "t", RetryAfter: time.Second}.Cooldown("", 0)
		assert.Zero(t, length, "%s in a store without cooldowns", r)
	}
	for _, r := range []Result{"", "OK", "ok "} {
		assert.False(t, r.Known())
	}
}

func TestEnded(t *testing.T) {
	l := Lease{Proxy: "crawl/a", Instance: Instance{ProxyUID: "u", ID: "1"}}
	offer := func(id string) *Offer {
		return &Offer{Candidate: Candidate{Instance: Instance{ProxyUID: "u", ID: id}}}
	}
	assert.Empty(t, Ended(l, offer("1")))
	for reason, now := range map[EndReason]*Offer{EndReplaced: offer("2"), EndGone: offer(""), EndDeleted: nil} {
		assert.Equal(t, reason, Ended(l, now))
		assert.ErrorContains(t, &EndedError{Reason: reason, Lease: l}, "proxy crawl/a")
	}
	assert.EqualError(t, &EndedError{Reason: EndExpired, Lease: Lease{ExpiresAt: time.Unix(0, 0)}}, "lease expired at 1970-01-01T00:00:00Z")
}

func TestHasAttributes(t *testing.T) {
	attributes := map[string]string{"geo": "eu", "note": ""}
	for _, s := range []map[string]string{nil, {}, {"geo": "eu"}, {"geo": "eu", "note": ""}} {
		assert.True(t, HasAttributes(attributes, s), "%v", s)
	}
	for _, s := range []map[string]string{{"geo": "us"}, {"geo": ""}, {"tier": ""}, {"geo": "eu", "tier": "x"}} {
		assert.False(t, HasAttributes(attributes, s), "%v", s)
	}
}

func TestRequestMatchesSelectorAndSchemes(t *testing.T) {
	eu := map[string]string{"geo": "eu"}
	for _, tt := range []struct {
		req    Request
		scheme string
		want   bool
	}{
		{Request{}, "https", true},
		{Request{Schemes: []string{"http"}}, "http", true},
		{Request{Schemes: []string{"http"}}, "https", false},
		{Request{Schemes: []string{"http", "https"}}, "https", true},
		{Request{Schemes: []string{"http"}, Selector: map[string]string{"geo": "us"}}, "http", false},
	} {
		assert.Equal(t, tt.want, tt.req.Matches(eu, tt.scheme), "%+v %s", tt.req, tt.scheme)
	}
}

func TestUsageTotal(t *testing.T) {
	assert.Zero(t, Usage{}.Total())
	u := Usage{Active: map[Instance]int{{ProxyUID: "a", ID: "1"}: 2, {ProxyUID: "a", ID: "2"}: 1, {ProxyUID: "b"}: 4}}
	assert.Equal(t, 7, u.Total())
}
