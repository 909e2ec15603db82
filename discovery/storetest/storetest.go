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

// Limits of the stores under test, which reach them soon.
func Limits() lease.Limits {
	return lease.Limits{Sessions: 6, TargetsPerProxy: 3, Targets: 7}
}

// Subject is a store to test.
type Subject struct {
	// Store is empty at first. It takes the time from the test's clock, cools
	// for Window and has Limits.
	Store discovery.LeaseStore
	// Reopen ends the store as a crash would, and returns one on what it has
	// kept. nil for stores that keep nothing.
	Reopen func(t *testing.T) discovery.LeaseStore
}

// Open returns an empty store. What has to be closed it leaves to t.Cleanup.
type Open func(t *testing.T, clk *clocktesting.FakeClock) Subject

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
		{"also of leases that are given back at once", fairnessOneByOne},
		{"similar latencies are equal", latencyClasses},
		{"selectors", selectors},
		{"excluded proxies are not chosen", excluded},
		{"before the fleet is told, nothing is granted", noFleet},
		{"what is not leasable is not granted", notLeasable},
		{"offers take effect at once", offersTakeEffect},
		{"capacity is never exceeded", capacity},
		{"maxLeases 0 is never leased", zeroCapacity},
		{"a lowered maxLeases waits for enough expiries", loweredCapacity},
		{"no candidates", noCandidates},
		{"a replaced instance starts with no leases", replacedInstance},
		{"holders see that their instance is gone", instanceGone},
		{"identity is the UID, not the name", identity},
		{"renew prolongs and never shortens", renewal},
		{"renew and get of what has ended", renewEnded},
		{"sessions stick", sessionsStick},
		{"sessions move when they must", sessionsMove},
		{"sessions are forgotten", sessionsEnd},
		{"a session is forgotten soon after its last release", sessionsEndEarly},
		{"sessions of one holder are limited", sessionsLimited},
		{"clients at once never have more sessions than allowed", parallelSessions},
		{"a repeated request gets its lease again", repeatedRequest},
		{"a key belongs to its holder and its request", keyOwners},
		{"clients that repeat at once get one lease", parallelKeys},
		{"a cooldown for one target", targetCooldown},
		{"a cooldown for all targets", globalCooldown},
		{"every result cools as the table says", policies},
		{"a report's target falls back to the lease's", targetFallback},
		{"ok cools nothing", okCoolsNothing},
		{"a second report prolongs a cooldown", prolongedCooldown},
		{"a cooldown outlives its lease", cooldownOutlivesLease},
		{"targets that a proxy cools for are limited", targetsLimited},
		{"targets that all proxies cool for are limited", allTargetsLimited},
		{"reports at once never start more cooldowns than allowed", parallelTargets},
		{"limits hold after a restart", limitsReopened},
		{"an early end is told from a late one", earliestFree},
		{"an expired lease does not count", expiry},
		{"an expired lease takes reports for the window", lateReport},
		{"release is idempotent", releaseTwice},
		{"an expired lease never touches its successor", successor},
		{"leases are listed by age, each once", listed},
		{"leases are listed as filtered", listedFiltered},
		{"leases that lead nowhere are listed as that", listedEnded},
		{"pages are whole while leases come and go", parallelPages},
		{"cooldowns are listed and ended", cooldownsEnded},
		{"who waits is woken when a cooldown is ended", cooldownsEndedWake},
		{"cooldowns are ended for good", cooldownsEndedReopened},
		{"a dead context grants nothing", deadContext},
		{"who waits is woken", signals},
		{"100 leases at once on 100 proxies", parallelDistinct},
		{"hundreds of clients never exceed maxLeases", parallelCapacity},
		{"64 clients do everything at once", parallelEverything},
		{"releases at once free one place", parallelRelease},
		{"any history agrees with a naive model", agreesWithModel},
		{"a store that was reopened knows everything", reopened},
		{"any history agrees with a naive model over restarts", agreesWithModelOverRestarts},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
			opened := open(t, clk)
			tt.run(t, &subject{T: t, clock: clk, store: opened.Store, reopenStore: opened.Reopen, told: map[string]*lease.Offer{}})
		})
	}
}

// subject is a store under test with helpers around it.
type subject struct {
	*testing.T
	clock       *clocktesting.FakeClock
	store       discovery.LeaseStore
	reopenStore func(t *testing.T) discovery.LeaseStore
	told        map[string]*lease.Offer // by Proxy UID: what the store was told
}

// fleet makes these proxies, and no others, leasable.
func (s *subject) fleet(candidates ...*lease.Candidate) {
	offers := make([]*lease.Offer, len(candidates))
	for i, c := range candidates {
		offers[i] = &lease.Offer{Candidate: *c, Leasable: true}
	}
	s.offer(offers...)
}

// offer makes these offers the only ones with leasable proxies.
func (s *subject) offer(offers ...*lease.Offer) {
	var change lease.Offers
	keep := map[string]bool{}
	for _, o := range offers {
		keep[o.ProxyUID] = true
		change.Changed = append(change.Changed, o)
		s.told[o.ProxyUID] = o
	}
	for uid, o := range s.told {
		if !keep[uid] && o.Leasable {
			off := *o
			off.Leasable = false
			s.told[uid] = &off
			change.Changed = append(change.Changed, &off)
		}
	}
	s.store.Offer(change)
}

// gone tells that Proxies were deleted.
func (s *subject) gone(uids ...string) {
	for _, uid := range uids {
		delete(s.told, uid)
	}
	s.store.Offer(lease.Offers{Gone: uids})
}

// reopen crashes the store and tells the new one of the fleet.
func (s *subject) reopen() {
	s.Helper()
	s.store = s.reopenStore(s.T)
	var all lease.Offers
	for _, o := range s.told {
		all.Changed = append(all.Changed, o)
	}
	s.store.Offer(all)
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

// request asks for any proxy, for a minute.
func request(target string) lease.Request {
	return lease.Request{Target: target, TTL: time.Minute}
}

// acquire wants a grant of one of these and no other.
func (s *subject) acquire(target string, candidates ...*lease.Candidate) lease.Lease {
	s.Helper()
	s.fleet(candidates...)
	return s.grant(request(target))
}

// grant wants a grant.
func (s *subject) grant(req lease.Request) lease.Lease {
	s.Helper()
	l, err := s.store.Acquire(context.Background(), req)
	require.NoError(s, err)
	return l
}

// refused wants a NoMatchError when these are all that there is.
func (s *subject) refused(target string, candidates ...*lease.Candidate) lease.Stats {
	s.Helper()
	s.fleet(candidates...)
	return s.refusal(request(target))
}

// refusal wants a NoMatchError.
func (s *subject) refusal(req lease.Request) lease.Stats {
	s.Helper()
	l, err := s.store.Acquire(context.Background(), req)
	var none *lease.NoMatchError
	require.ErrorAs(s, err, &none)
	require.Empty(s, l, "nothing is granted along with an error")
	assert.Equal(s, none.Considered, none.AtCapacity+none.InCooldown, "the counts add up")
	return none.Stats
}

// ended wants get and renew to say why the lease leads nowhere.
func (s *subject) ended(l lease.Lease, reason lease.EndReason) {
	s.Helper()
	_, err := s.store.Get(context.Background(), l.ID)
	var ended *lease.EndedError
	require.ErrorAs(s, err, &ended)
	assert.Equal(s, reason, ended.Reason)
	assert.Equal(s, l.Proxy, ended.Lease.Proxy)
	_, err = s.store.Renew(context.Background(), l.ID, time.Hour)
	require.ErrorAs(s, err, &ended)
	assert.Equal(s, reason, ended.Reason)
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
