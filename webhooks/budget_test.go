package webhooks

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

func testBudget(limit intstr.IntOrString) (*budget, *clocktesting.FakePassiveClock) {
	clk := clocktesting.NewFakePassiveClock(proxytest.Noon())
	return newBudget(limit, testTiming().ProvisioningDeadline, clk), clk
}

func uid(i int) types.UID { return types.UID(fmt.Sprintf("uid-%d", i)) }

func seeFleet(b *budget, provider string, n int) {
	for i := range n {
		b.see(provider, uid(i), false, true)
	}
}

func TestParseLimit(t *testing.T) {
	for in, want := range map[string]intstr.IntOrString{"20%": intstr.FromString("20%"), "1%": intstr.FromString("1%"), "100%": intstr.FromString("100%"), "1": intstr.FromInt32(1), "500": intstr.FromInt32(500)} {
		got, err := ParseLimit(in)
		require.NoError(t, err, in)
		assert.Equal(t, want, got, in)
	}
	for _, in := range []string{"", "%", "0", "0%", "101%", "-1", "-5%", "2.5%", "20 %", "many", "20%%", "4294967297", "99999999999999999999"} {
		_, err := ParseLimit(in)
		require.ErrorContains(t, err, "1% to 100%", in)
	}
}

func TestLimitOf(t *testing.T) {
	for fleet, want := range map[int]int{0: 1, 1: 1, 4: 1, 5: 1, 9: 1, 10: 2, 100: 20, 104: 20} {
		assert.Equal(t, want, limitOf(intstr.FromString("20%"), fleet), "20%% of %d", fleet)
	}
	assert.Equal(t, 3, limitOf(intstr.FromInt32(3), 1))
	assert.Equal(t, 3, limitOf(intstr.FromInt32(3), 1000))
}

func TestBudgetCountsReplacementsUntilReady(t *testing.T) {
	b, _ := testBudget(intstr.FromString("20%"))
	seeFleet(b, "pods", 10)
	require.True(t, b.allow("pods", uid(0), "old-0"))
	require.True(t, b.allow("pods", uid(1), "old-1"))
	require.False(t, b.allow("pods", uid(2), "old-2"), "2 of 10 are under way")
	assert.Equal(t, map[string]budgetState{"pods": {seen: 10, underWay: 2, limit: 2, ready: true}}, b.states())

	b.end("pods", uid(0), "new-0", false)
	require.False(t, b.allow("pods", uid(2), "old-2"), "the new instance runs and is not Ready")
	b.end("pods", uid(0), "new-0", true)
	require.True(t, b.allow("pods", uid(2), "old-2"))
}

func TestBudgetAllowsOneOfASmallFleet(t *testing.T) {
	b, _ := testBudget(intstr.FromString("20%"))
	require.True(t, b.allow("pods", uid(0), "old"), "even if this is the only one ever seen")
	require.False(t, b.allow("pods", uid(1), "old"))
}

func TestBudgetAllowsAgainWhatIsUnderWay(t *testing.T) {
	b, _ := testBudget(intstr.FromInt32(1))
	require.True(t, b.allow("pods", uid(0), "old"))
	require.True(t, b.allow("pods", uid(0), "old"), "the answer was lost")
	require.True(t, b.allow("pods", uid(0), "new"), "edited again, the new instance does not work")
	assert.Equal(t, 1, b.states()["pods"].underWay)
}

func TestBudgetOfARevertedEdit(t *testing.T) {
	b, _ := testBudget(intstr.FromInt32(1))
	require.True(t, b.allow("pods", uid(0), "old"))
	b.end("pods", uid(0), "old", false)
	require.True(t, b.allow("pods", uid(1), "x"), "the old instance was never replaced")
}

func TestBudgetDropsDeletedProxies(t *testing.T) {
	b, _ := testBudget(intstr.FromInt32(1))
	require.True(t, b.allow("pods", uid(0), "old"))
	b.forget("pods", uid(0))
	b.forget("pods", uid(99))
	b.forget("never seen", uid(0))
	require.True(t, b.allow("pods", uid(1), "old"))
}

func TestBudgetIsPerProvider(t *testing.T) {
	b, _ := testBudget(intstr.FromInt32(1))
	require.True(t, b.allow("a", uid(0), "old"))
	require.True(t, b.allow("b", uid(1), "old"))
	require.False(t, b.allow("a", uid(2), "old"))
}

func TestBudgetRelearnsAfterARestart(t *testing.T) {
	b, _ := testBudget(intstr.FromString("20%"))
	seeFleet(b, "pods", 10)
	b.see("pods", uid(0), true, false)
	b.see("pods", uid(1), true, false)
	require.False(t, b.allow("pods", uid(2), "old"))
	require.True(t, b.allow("pods", uid(1), "old"), "it holds a place")

	b.end("pods", uid(0), "", false)
	require.False(t, b.allow("pods", uid(2), "old"), "the old instance of uid-0 is unknown; only Ready ends it")
	b.end("pods", uid(0), "new", true)
	require.True(t, b.allow("pods", uid(2), "old"))
}

func TestBudgetExpiresWhatIsNotSeen(t *testing.T) {
	b, clk := testBudget(intstr.FromString("50%"))
	seeFleet(b, "pods", 4)
	require.True(t, b.allow("pods", uid(0), "old"))
	require.True(t, b.allow("pods", uid(1), "old"))
	require.False(t, b.allow("pods", uid(2), "old"))

	clk.SetTime(proxytest.Noon().Add(seenLately))
	b.see("pods", uid(2), false, false)
	assert.Equal(t, 4, b.states()["pods"].seen, "seen just lately enough")
	clk.SetTime(proxytest.Noon().Add(seenLately + expiryInterval))
	assert.Equal(t, map[string]budgetState{"pods": {seen: 1, underWay: 0, limit: 1}}, b.states())
	clk.SetTime(proxytest.Noon().Add(3 * seenLately))
	assert.Empty(t, b.states())
}

// However many ask at once, the limit holds at every moment.
func TestBudgetUnderRace(t *testing.T) {
	const fleet, limit = 200, 40
	b, _ := testBudget(intstr.FromString("20%"))
	seeFleet(b, "pods", fleet)
	var mu sync.Mutex
	held, most, done := 0, 0, 0
	var wg sync.WaitGroup
	for i := range fleet {
		wg.Go(func() {
			for !b.allow("pods", uid(i), "old") {
				b.see("pods", uid(i), false, false)
				time.Sleep(time.Microsecond)
			}
			mu.Lock()
			held++
			most = max(most, held)
			mu.Unlock()
			assert.LessOrEqual(t, b.states()["pods"].underWay, limit)
			mu.Lock()
			held--
			done++
			mu.Unlock()
			b.end("pods", uid(i), "new", true)
		})
	}
	wg.Wait()
	assert.Equal(t, fleet, done, "all get their turn")
	assert.LessOrEqual(t, most, limit)
	assert.Zero(t, b.states()["pods"].underWay)
}

// pastDeadline lets every replacement that is under way fail.
func pastDeadline(clk *clocktesting.FakePassiveClock) {
	clk.SetTime(clk.Now().Add(testTiming().ProvisioningDeadline + time.Second))
}

// broke is a Proxy that was allowed to go and is not Ready.
func broke(t *testing.T, b *budget, i int) {
	t.Helper()
	require.True(t, b.allow("pods", uid(i), "old"))
	b.see("pods", uid(i), true, false)
}

// succeeded is a Proxy that was allowed to go and is Ready again.
func succeeded(t *testing.T, b *budget, i int) {
	t.Helper()
	require.True(t, b.allow("pods", uid(i), "old"))
	b.see("pods", uid(i), true, true)
	b.end("pods", uid(i), "new", true)
}

func TestBudgetOfOneBrokenProxy(t *testing.T) {
	b, clk := testBudget(intstr.FromInt32(1))
	seeFleet(b, "pods", 4)
	broke(t, b, 0)
	clk.SetTime(clk.Now().Add(testTiming().ProvisioningDeadline))
	seeOthers(b, 4)
	require.False(t, b.allow("pods", uid(1), "old"), "it may still come up")

	pastDeadline(clk)
	require.True(t, b.allow("pods", uid(1), "old"), "a trial")
	require.False(t, b.allow("pods", uid(2), "old"), "one at a time")
	assert.Equal(t, budgetState{seen: 4, underWay: 2, failed: 1, lost: 1, limit: 1, ready: true}, b.states()["pods"])
	succeeded(t, b, 1)
	assert.Equal(t, budgetState{seen: 4, limit: 1, ready: true}, b.states()["pods"], "the failed one's place is free")

	b.see("pods", uid(0), true, false)
	assert.Zero(t, b.states()["pods"].underWay, "what its status says takes no place again")
	succeeded(t, b, 2)
	require.True(t, b.allow("pods", uid(0), "broken"), "edited, it asks like everybody")
	require.False(t, b.allow("pods", uid(3), "old"))
}

// A spec that is no good costs one Proxy more than the limit.
func TestBudgetOfABadSpec(t *testing.T) {
	b, clk := testBudget(intstr.FromInt32(3))
	seeFleet(b, "pods", 20)
	replaced := 0
	for i := range 20 {
		for range 10 {
			if !b.see("pods", uid(i), false, true) && b.allow("pods", uid(i), "old") {
				b.see("pods", uid(i), true, false)
				replaced++
			}
		}
		pastDeadline(clk)
		seeOthers(b, 20)
	}
	require.Equal(t, 4, replaced)

	require.True(t, b.allow("pods", uid(0), "bad"), "the mended spec")
	b.see("pods", uid(0), true, true)
	b.end("pods", uid(0), "good", true)
	for i := 10; i < 13; i++ {
		require.True(t, b.allow("pods", uid(i), "old"))
	}
	require.False(t, b.allow("pods", uid(13), "old"))
}

// seeOthers keeps a fleet from being forgotten.
func seeOthers(b *budget, n int) {
	for i := range n {
		e := b.fleets["pods"][uid(i)]
		b.see("pods", uid(i), false, e.ready)
	}
}

// Without a Ready Proxy there are no trials: the probes may be broken.
func TestBudgetWithoutAReadyProxy(t *testing.T) {
	b, clk := testBudget(intstr.FromInt32(2))
	seeFleet(b, "pods", 10)
	broke(t, b, 0)
	broke(t, b, 1)
	for i := range 10 {
		b.see("pods", uid(i), false, false)
	}
	for range 100 {
		pastDeadline(clk)
		seeOthers(b, 10)
		for i := 2; i < 10; i++ {
			require.False(t, b.allow("pods", uid(i), "old"))
		}
	}
	b.see("pods", uid(9), false, true)
	require.True(t, b.allow("pods", uid(2), "old"), "one is: probes work")
	require.False(t, b.allow("pods", uid(3), "old"))
}

// The replacement of an instance that is not Ready loses nothing: its edit may repair it.
func TestBudgetTrialOfAnInstanceThatIsNotReady(t *testing.T) {
	b, clk := testBudget(intstr.FromInt32(1))
	seeFleet(b, "pods", 10)
	for i := range 2 {
		broke(t, b, i)
		pastDeadline(clk)
		seeOthers(b, 10)
	}
	require.False(t, b.allow("pods", uid(2), "old"), "two Ready ones were lost")
	for i := 3; i < 6; i++ {
		b.see("pods", uid(i), false, false)
		require.True(t, b.allow("pods", uid(i), "old"))
		require.False(t, b.allow("pods", uid(6), "old"), "one at a time")
		pastDeadline(clk)
		seeOthers(b, 10)
	}
	assert.Equal(t, budgetState{seen: 10, underWay: 5, failed: 5, lost: 2, limit: 1, ready: true}, b.states()["pods"])
	b.forget("pods", uid(1))
	require.True(t, b.allow("pods", uid(2), "old"), "one of the lost Proxies was deleted")
}

// edited returns hooks with a clock, and a fleet that is Ready and then edited.
func editedFleet(t *testing.T, size int) (h *Hooks, clk *clocktesting.FakePassiveClock, fleet []*world) {
	t.Helper()
	o := testOptions()
	clk = clocktesting.NewFakePassiveClock(proxytest.Noon())
	o.Clock = clk
	h = New(o)
	fleet = readyFleet(t, h, size, proxytest.Managed)
	for _, w := range fleet {
		w.proxy.Spec.Port = 3129
	}
	return h, clk, fleet
}

func rounds(t *testing.T, h *Hooks, fleet []*world, n int) {
	t.Helper()
	for range n {
		for _, w := range fleet {
			w.round(t, h)
		}
	}
}

func replacedIn(fleet []*world) int {
	return count(fleet, func(w *world) bool { return w.pods > 1 })
}

func TestOneBrokenProxyDoesNotStopTheOthers(t *testing.T) {
	h, clk, fleet := editedFleet(t, 4)
	fleet[0].round(t, h) // goes, and comes back broken
	fleet[0].broken = true
	rounds(t, h, fleet, 8)
	require.Equal(t, 1, replacedIn(fleet), "the limit is one")
	require.Equal(t, v1alpha1.PhaseUnhealthy, fleet[0].proxy.Status.Phase)

	pastDeadline(clk)
	rounds(t, h, fleet, 20)
	require.Equal(t, 4, replacedIn(fleet))
	require.Equal(t, 3, count(fleet, (*world).leasable))
}

func TestAnOutageOfTheProbeTargetDoesNotReplaceTheFleet(t *testing.T) {
	const size, limit = 10, 2
	h, clk, fleet := editedFleet(t, size)
	for _, w := range fleet {
		w.sync(t, h)
	}
	for _, w := range fleet {
		w.broken = true
		w.prober()
	}
	for range 20 {
		rounds(t, h, fleet, 3)
		require.Equal(t, limit, replacedIn(fleet))
		pastDeadline(clk)
	}
	for _, w := range fleet {
		w.broken = false
	}
	rounds(t, h, fleet, 30)
	require.Equal(t, size, replacedIn(fleet), "it is over")
	require.Equal(t, size, count(fleet, (*world).leasable))
}

// oneAtATime returns hooks that let one replacement go at a time, and a fleet of
// two whose specs have been edited, the first being on its way.
func oneAtATime(t *testing.T) (h *Hooks, first, second *world) {
	t.Helper()
	h = fixtureHooks()
	fleet := readyFleet(t, h, 2, proxytest.Managed)
	for _, w := range fleet {
		w.proxy.Spec.Port = 3129
		w.sync(t, h)
	}
	require.False(t, fleet[0].leasable())
	require.True(t, fleet[1].leasable(), "it waits")
	return h, fleet[0], fleet[1]
}

func (w *world) resyncAfter(t *testing.T) float64 {
	t.Helper()
	var resp metacontroller.Response
	require.NoError(t, json.Unmarshal(w.answer, &resp))
	return resp.ResyncAfterSeconds
}

// A Ready answer is visible to other processes only once the status is written.
func TestNextReplacementWaitsUntilTheStoredStatusIsReady(t *testing.T) {
	h, first, second := oneAtATime(t)
	first.until(t, h, "Ready", first.leasable)
	assert.Equal(t, testTiming().BudgetPoll.Seconds(), first.resyncAfter(t), "no event will tell that the status was written")

	second.sync(t, h)
	require.True(t, second.leasable(), "the status of the first may still be on its way")
	first.sync(t, h)
	assert.Equal(t, testTiming().DriftPoll.Seconds(), first.resyncAfter(t))
	second.sync(t, h)
	require.False(t, second.leasable())
}

// A sync can overtake the event of the status that was written before it. What
// it answers must not hide from later releases that a replacement is under way.
func TestStaleStatusHidesNoReplacement(t *testing.T) {
	h, first, _ := oneAtATime(t)
	require.NotNil(t, first.pod.DeletionTimestamp)
	first.proxy.Status = readyFleet(t, h, 1, proxytest.Managed)[0].proxy.Status // as it was before
	first.sync(t, h)
	assert.True(t, (&proxy.Observation{Proxy: first.proxy}).ReplacementUnderWay())

	restarted := fixtureHooks()
	first.sync(t, restarted)
	assert.Equal(t, 1, restarted.budget.states()["pods"].underWay)
	first.until(t, restarted, "Ready", first.leasable)
	first.sync(t, restarted)
	assert.Zero(t, restarted.budget.states()["pods"].underWay)
}

// At rest nothing is asked for more often than before.
func TestProxyWithoutReplacementResyncsAtTheDriftPoll(t *testing.T) {
	w := &world{proxy: proxytest.Managed()}
	w.until(t, fixtureHooks(), "Ready", w.leasable)
	assert.Equal(t, testTiming().DriftPoll.Seconds(), w.resyncAfter(t))
	assert.Equal(t, v1alpha1.PhaseReady, w.proxy.Status.Phase)
}
