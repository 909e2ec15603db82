// Package storetest holds the tests that every lease store must pass. A store's
// own tests call Run.
package storetest

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Window is the cooldown window of the stores under test.
const Window = 10 * time.Minute

// Limits of the stores under test, which reach them soon.
func Limits() lease.Limits {
	return lease.Limits{Sessions: 6, TargetsPerProxy: 3, Targets: 7, Expired: 8}
}

// Subject is a store to test.
type Subject struct {
	// Store is empty at first. It takes the time from the test's clock, cools
	// for Window and has Limits.
	Store lease.Store
	// Reopen ends the store as a crash would, and returns one on what it has
	// kept. nil for stores that keep nothing.
	Reopen func(t *testing.T) lease.Store
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
		{"fewest leases, then the last grant, then latency, then name", preference},
		{"equal proxies get equal shares", fairness},
		{"also of leases that are released at once", fairnessOneByOne},
		{"latency takes no turn away", latencyIsNoOrder},
		{"latency takes no turn away while leases are held", latencyIsNoOrderWhileHeld},
		{"a new proxy gets its share and no flood", newProxyShare},
		{"excluded proxies leave equal shares to the others", excludedShare},
		{"selectors", selectors},
		{"excluded proxies are not chosen", excluded},
		{"proxies of another scheme are not chosen", otherSchemes},
		{"before the first offer nothing is granted", noFleet},
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
		{"sessions end", sessionsEnd},
		{"a session ends soon after its last release", sessionsEndEarly},
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
		{"a report names the length of its cooldown", retryAfter},
		{"an unreachable target rests for itself alone", targetUnreachable},
		{"a second report prolongs a cooldown", prolongedCooldown},
		{"a cooldown outlives its lease", cooldownOutlivesLease},
		{"targets that a proxy cools for are limited", targetsLimited},
		{"targets that all proxies cool for are limited", allTargetsLimited},
		{"reports at once never start more cooldowns than allowed", parallelTargets},
		{"limits hold after a restart", limitsReopened},
		{"an early end is told from a late one", earliestFree},
		{"an expired lease does not count", expiry},
		{"an expired lease takes reports for the window", lateReport},
		{"the oldest expired leases are evicted", expiredLimited},
		{"release is idempotent", releaseTwice},
		{"an expired lease never touches its successor", successor},
		{"leases are listed by age, each once", listed},
		{"leases are listed as filtered", listedFiltered},
		{"leases of gone instances are listed with the reason", listedEnded},
		{"pages are whole while leases come and go", parallelPages},
		{"cooldowns are listed and ended", cooldownsEnded},
		{"waiting goroutines are woken when a cooldown is ended", cooldownsEndedWake},
		{"cooldowns are ended for good", cooldownsEndedReopened},
		{"a dead context grants nothing", deadContext},
		{"waiting goroutines are woken", signals},
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
