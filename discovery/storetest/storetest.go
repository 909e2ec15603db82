// Package storetest holds the tests that every lease store must pass. A store's
// own tests call Run.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Window is the cooldown window of the stores under test.
const Window = 10 * time.Minute

// Open returns an empty store that takes the time from clk and cools for
// Window. What has to be closed it leaves to t.Cleanup.
type Open func(t *testing.T, clk *clocktesting.FakeClock) discovery.LeaseStore

// Run runs all tests against stores that open returns, each against one of its
// own.
func Run(t *testing.T, open Open) {
	tests := []struct {
		name string
		run  func(*testing.T, *subject)
	}{
		{"a grant is complete, unguessable and fenced", grantIsComplete},
		{"fewest leases, then latency, then name", preference},
		{"equal proxies get equal shares", fairness},
		{"capacity is never exceeded", capacity},
		{"maxLeases 0 is never leased", zeroCapacity},
		{"a lowered maxLeases waits for enough expiries", loweredCapacity},
		{"no candidates", noCandidates},
		{"a replaced instance starts with no leases", replacedInstance},
		{"identity is the UID, not the name", identity},
		{"a cooldown for one target", targetCooldown},
		{"a cooldown for all targets", globalCooldown},
		{"a report's target falls back to the lease's", targetFallback},
		{"ok cools nothing", okCoolsNothing},
		{"a second report prolongs a cooldown", prolongedCooldown},
		{"a cooldown outlives its lease", cooldownOutlivesLease},
		{"an early end is told from a late one", earliestFree},
		{"an expired lease does not count", expiry},
		{"an expired lease takes reports for the window", lateReport},
		{"release is idempotent", releaseTwice},
		{"an expired lease never touches its successor", successor},
		{"a dead context grants nothing", deadContext},
		{"100 leases at once on 100 proxies", parallelDistinct},
		{"hundreds of clients never exceed maxLeases", parallelCapacity},
		{"releases at once free one place", parallelRelease},
		{"any history agrees with a naive model", agreesWithModel},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
			tt.run(t, &subject{T: t, clock: clk, store: open(t, clk)})
		})
	}
}

// subject is a store under test with helpers around it.
type subject struct {
	*testing.T
	clock *clocktesting.FakeClock
	store discovery.LeaseStore
}

// proxy is a candidate named after n, one of any number.
func proxy(n, maxLeases int) *lease.Candidate {
	return &lease.Candidate{
		Instance:      lease.Instance{ProxyUID: fmt.Sprintf("uid-%03d", n), ID: fmt.Sprintf("instance-%03d", n)},
		Proxy:         fmt.Sprintf("crawl/proxy-%03d", n),
		MaxLeases:     maxLeases,
		LatencyMillis: 20,
	}
}

func proxies(count, maxLeases int) []*lease.Candidate {
	out := make([]*lease.Candidate, count)
	for i := range out {
		out[i] = proxy(i, maxLeases)
	}
	return out
}

// request asks for one of candidates, for a minute.
func request(target string, candidates ...*lease.Candidate) lease.Request {
	return lease.Request{Candidates: candidates, Target: target, TTL: time.Minute}
}

// acquire wants a grant.
func (s *subject) acquire(target string, candidates ...*lease.Candidate) lease.Lease {
	s.Helper()
	l, err := s.store.Acquire(context.Background(), request(target, candidates...))
	require.NoError(s, err)
	return l
}

// refused wants a NoMatchError.
func (s *subject) refused(target string, candidates ...*lease.Candidate) lease.Stats {
	s.Helper()
	l, err := s.store.Acquire(context.Background(), request(target, candidates...))
	var none *lease.NoMatchError
	require.ErrorAs(s, err, &none)
	require.Empty(s, l, "nothing is granted along with an error")
	assert.Equal(s, none.Considered, none.AtCapacity+none.InCooldown, "the counts add up")
	return none.Stats
}

func (s *subject) release(id string) {
	s.Helper()
	require.NoError(s, s.store.Release(context.Background(), id))
}

func (s *subject) report(id string, result lease.Result, target string) {
	s.Helper()
	require.NoError(s, s.reportErr(id, result, target))
}

func (s *subject) reportErr(id string, result lease.Result, target string) error {
	return s.store.Report(context.Background(), id, lease.Report{Result: result, Target: target})
}

func (s *subject) active(i lease.Instance) int {
	s.Helper()
	u, err := s.store.Usage(context.Background())
	require.NoError(s, err)
	return u.Active[i]
}

func (s *subject) total() int {
	s.Helper()
	u, err := s.store.Usage(context.Background())
	require.NoError(s, err)
	return u.Total()
}

func isNoMatch(err error) bool {
	var none *lease.NoMatchError
	return errors.As(err, &none)
}
