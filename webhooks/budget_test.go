package webhooks

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
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
	for _, in := range []string{"", "%", "0", "0%", "101%", "-1", "-5%", "2.5%", "20 %", "many", "20%%"} {
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

func TestBudgetHoldsPlacesUntilReady(t *testing.T) {
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

func TestBudgetOfAnEditThatWasTakenBack(t *testing.T) {
	b, _ := testBudget(intstr.FromInt32(1))
	require.True(t, b.allow("pods", uid(0), "old"))
	b.end("pods", uid(0), "old", false)
	require.True(t, b.allow("pods", uid(1), "x"), "the old instance was never replaced")
}

func TestBudgetForgetsTheDeleted(t *testing.T) {
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
	require.False(t, b.allow("pods", uid(2), "old"), "nobody knows what uid-0 had before; only Ready ends it")
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
