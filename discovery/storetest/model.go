package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// model is the rules of a lease store written down as plainly as possible:
// lists that are searched from end to end, and nothing ever thrown away.
type model struct {
	leases   []lease.Lease
	released map[string]bool
	cools    map[[2]string]time.Time // by Proxy UID and target
}

func (m *model) active(i lease.Instance, now time.Time) (ends []time.Time) {
	for _, l := range m.leases {
		if l.Instance == i && !m.released[l.ID] && now.Before(l.ExpiresAt) {
			ends = append(ends, l.ExpiresAt)
		}
	}
	slices.SortFunc(ends, time.Time.Compare)
	return ends
}

func (m *model) coolsUntil(uid, target string, now time.Time) time.Time {
	until := m.cools[[2]string{uid, ""}]
	if u := m.cools[[2]string{uid, target}]; u.After(until) {
		until = u
	}
	if !now.Before(until) {
		return time.Time{}
	}
	return until
}

// acquire returns the name of the one proxy that may be granted, or why there
// is none.
func (m *model) acquire(req lease.Request, now time.Time) (string, lease.Stats) {
	free := slices.Clone(req.Candidates)
	free = slices.DeleteFunc(free, func(c *lease.Candidate) bool {
		return len(m.active(c.Instance, now)) >= c.MaxLeases || !m.coolsUntil(c.ProxyUID, req.Target, now).IsZero()
	})
	slices.SortFunc(free, func(a, b *lease.Candidate) int {
		return lease.Compare(a, len(m.active(a.Instance, now)), b, len(m.active(b.Instance, now)))
	})
	if len(free) > 0 {
		return free[0].Proxy, lease.Stats{}
	}
	return "", m.explain(req, now)
}

func (m *model) explain(req lease.Request, now time.Time) lease.Stats {
	stats := lease.Stats{Considered: len(req.Candidates)}
	for _, c := range req.Candidates {
		ends, cooled := m.active(c.Instance, now), m.coolsUntil(c.ProxyUID, req.Target, now)
		var room time.Time
		if len(ends) >= c.MaxLeases {
			room = ends[len(ends)-c.MaxLeases]
		}
		if cooled.IsZero() {
			stats.CountAtCapacity(room)
			continue
		}
		if room.After(cooled) {
			cooled = room
		}
		stats.CountInCooldown(cooled)
	}
	return stats
}

func (m *model) report(id string, rep lease.Report, now time.Time) error {
	i := slices.IndexFunc(m.leases, func(l lease.Lease) bool { return l.ID == id })
	if i < 0 || m.released[id] || !now.Before(m.leases[i].ExpiresAt.Add(Window)) {
		return lease.ErrUnknown
	}
	target := rep.Target
	if target == "" {
		target = m.leases[i].Target
	}
	if rep.Result.Cools() {
		m.cools[[2]string{m.leases[i].Instance.ProxyUID, target}] = now.Add(Window)
	}
	return nil
}

// agreesWithModel plays random histories to the store and to the model.
func agreesWithModel(t *testing.T, s *subject) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	m := &model{released: map[string]bool{}, cools: map[[2]string]time.Time{}}
	for step := range 2000 {
		what := play(t, s, m, rnd)
		if t.Failed() {
			t.Fatalf("seed %d, step %d: %s", seed, step, what)
		}
	}
}

// play takes one random step and compares.
func play(t *testing.T, s *subject, m *model, rnd *rand.Rand) string {
	now := s.clock.Now()
	switch rnd.IntN(8) {
	case 0, 1, 2, 3:
		return playAcquire(t, s, m, rnd)
	case 4:
		id := anyLease(m, rnd)
		s.release(id)
		m.released[id] = true
		return "release " + id
	case 5:
		id := anyLease(m, rnd)
		rep := lease.Report{Result: lease.Results()[rnd.IntN(3)], Target: anyTarget(rnd)}
		want := m.report(id, rep, now)
		assert.Equal(t, want, s.reportErr(id, rep.Result, rep.Target))
		return fmt.Sprintf("report %s %v", id, rep)
	case 6:
		s.clock.Step(time.Duration(rnd.IntN(300)) * time.Second)
		return "wait"
	}
	u, err := s.store.Usage(t.Context())
	require.NoError(t, err)
	for i := range modelFleet {
		c := proxy(i, 0)
		assert.Len(t, m.active(c.Instance, now), u.Active[c.Instance])
		assert.True(t, m.coolsUntil(c.ProxyUID, "", now).Equal(u.CoolingUntil[c.ProxyUID]))
	}
	return "count"
}

// modelFleet is small, so that proxies fill up and cool all the time.
const modelFleet = 6

func playAcquire(t *testing.T, s *subject, m *model, rnd *rand.Rand) string {
	var candidates []*lease.Candidate
	for i := range modelFleet {
		if rnd.IntN(3) > 0 {
			c := proxy(i, 1+rnd.IntN(3))
			c.LatencyMillis = int64(rnd.IntN(3))
			candidates = append(candidates, c)
		}
	}
	req := lease.Request{Candidates: candidates, Target: anyTarget(rnd), TTL: time.Duration(1+rnd.IntN(600)) * time.Second}
	wantProxy, wantStats := m.acquire(req, s.clock.Now())
	l, err := s.store.Acquire(t.Context(), req)
	if wantProxy == "" {
		assert.Equal(t, &lease.NoMatchError{Stats: wantStats}, err)
		return "acquire, in vain"
	}
	require.NoError(t, err)
	assert.Equal(t, wantProxy, l.Proxy)
	m.leases = append(m.leases, l)
	return "acquire " + l.Proxy
}

func anyLease(m *model, rnd *rand.Rand) string {
	if len(m.leases) == 0 || rnd.IntN(20) == 0 {
		return "no-such-lease"
	}
	recent := m.leases[max(0, len(m.leases)-30):]
	return recent[rnd.IntN(len(recent))].ID
}

func anyTarget(rnd *rand.Rand) string {
	return []string{"", "a.example", "b.example"}[rnd.IntN(3)]
}
