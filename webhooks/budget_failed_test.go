package webhooks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

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

// While nobody is Ready there are no trials: it may be the probes.
func TestBudgetWhileNobodyIsReady(t *testing.T) {
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

// An instance that is not Ready is nobody's loss: its edit may be what mends it.
func TestBudgetOfWhatIsNotReadyAnyway(t *testing.T) {
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
	require.True(t, b.allow("pods", uid(2), "old"), "somebody has taken one of the lost ones away")
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
