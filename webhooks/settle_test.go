package webhooks

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

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

// An answer that says Ready is not yet a Ready that anybody can see.
func TestTheNextOneGoesWhenThisOneIsSeenToBeBack(t *testing.T) {
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
func TestAStatusThatIsSeenLateHidesNoReplacement(t *testing.T) {
	h, first, _ := oneAtATime(t)
	require.NotNil(t, first.pod.DeletionTimestamp)
	first.proxy.Status = readyFleet(t, h, 1, proxytest.Managed)[0].proxy.Status // as it was before
	first.sync(t, h)
	assert.True(t, proxy.ReplacementUnderWay(&first.proxy.Status))

	restarted := fixtureHooks()
	first.sync(t, restarted)
	assert.Equal(t, 1, restarted.budget.states()["pods"].underWay)
	first.until(t, restarted, "Ready", first.leasable)
	first.sync(t, restarted)
	assert.Zero(t, restarted.budget.states()["pods"].underWay)
}

// At rest nothing is asked for more often than before.
func TestAProxyThatWasNeverReplacedIsLookedAtSeldom(t *testing.T) {
	w := &world{proxy: proxytest.Managed()}
	w.until(t, fixtureHooks(), "Ready", w.leasable)
	assert.Equal(t, testTiming().DriftPoll.Seconds(), w.resyncAfter(t))
	assert.Equal(t, v1alpha1.PhaseReady, w.proxy.Status.Phase)
}
