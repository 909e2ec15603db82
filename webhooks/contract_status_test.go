package webhooks

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

func TestContractStatusFitsTheCRD(t *testing.T) {
	forEachCase(t, statusFitsTheCRD(t), "sync", "finalize")
}

func statusFitsTheCRD(tb testing.TB) func(t *testing.T, c contractCase) {
	tb.Helper()
	status, probe := proxySchema(tb).Properties["status"], probeSchema(tb)
	return func(t *testing.T, c contractCase) {
		a := v2Of(t, c.answer(t))
		require.Empty(t, status.check("status", decoded(t, a.Status)))
		for _, child := range a.Children {
			if child["kind"] == "ProxyProbe" {
				require.Empty(t, probe.check("", decoded(t, child)))
			}
		}
	}
}

// withStatus is the request with that status on the parent, as Metacontroller
// writes it: replaced whole.
func (c contractCase) withStatus(t testing.TB, status any) contractCase {
	t.Helper()
	return c.edited(t, func(parent object) { parent["status"] = status })
}

// Once the status is written, the clock changes nothing: neither an earlier time
// nor one years later. The exceptions are the timeout of the instance, and then of
// its ProxyProbe, and the backoff of a Pod that ended. They are crossed once.
func TestContractNoWallClockInStatus(t *testing.T) {
	crossings := 0
	forEachCase(t, func(t *testing.T, c contractCase) {
		c = c.withStatus(t, v2Of(t, c.answer(t)).Status)
		var before []byte
		crossed := 0
		for _, shift := range []time.Duration{-20000 * time.Hour, -time.Second, 0, time.Nanosecond, time.Minute, 11 * time.Minute, time.Hour, 20000 * time.Hour} {
			got := withoutRest(t, answerTo(t, c.hooks(c.now.Add(shift)), c.hook, c.body))
			if before != nil && string(before) != string(got) {
				crossed++
				requireDeadlineCrossed(t, v2Of(t, before), v2Of(t, got))
			}
			before = got
		}
		require.LessOrEqual(t, crossed, 1)
		crossings += crossed
	}, "sync", "finalize")
	require.Greater(t, crossings, 20, "the cases hold some that wait")
}

// resyncPattern is when Metacontroller calls again, in an answer.
var resyncPattern = regexp.MustCompile(`"resyncAfterSeconds": ?[^,}]+`)

// withoutRest is an answer that keeps an ended Pod, without the time that is left to its
// retry. Other answers stay as they are.
func withoutRest(t *testing.T, answer []byte) []byte {
	t.Helper()
	a := v2Of(t, answer)
	ended := a.reason() == v1alpha1.ReasonInstanceFailing || a.reason() == v1alpha1.ReasonInstanceTerminated
	if !ended || len(a.Children) != 1 || text(a.Status, "instanceID") == "" {
		return answer
	}
	require.Positive(t, *a.ResyncAfterSeconds)
	require.LessOrEqual(t, *a.ResyncAfterSeconds, (5 * time.Minute).Seconds())
	return resyncPattern.ReplaceAll(answer, []byte(`"resyncAfterSeconds":1`))
}

// requireDeadlineCrossed wants the two answers to differ in that an instance, or
// its ProxyProbe, should have been there by now, or that an ended Pod is not kept any
// longer.
func requireDeadlineCrossed(t *testing.T, before, after v2Answer) {
	t.Helper()
	if before.reason() != after.reason() {
		require.Equal(t, v1alpha1.ReasonProvisioning, before.reason())
		require.Equal(t, v1alpha1.ReasonProvisioningTimeout, after.reason())
		return
	}
	if r := before.reason(); r == v1alpha1.ReasonInstanceFailing || r == v1alpha1.ReasonInstanceTerminated {
		require.Equal(t, typedStatus(t, before), typedStatus(t, after))
		require.Len(t, before.Children, 1, "the Pod")
		require.Empty(t, after.Children)
		return
	}
	health := func(a v2Answer) string {
		return meta.FindStatusCondition(typedStatus(t, a).Conditions, v1alpha1.ConditionHealthy).Message
	}
	require.Contains(t, health(before), "waiting for the prober's first verdict")
	require.Contains(t, health(after), "the prober does not check it")
}

// However often a hook is called.
func TestContractNoCountersInStatus(t *testing.T) {
	forEachCase(t, noCountersInStatus, "sync", "finalize")
}

func noCountersInStatus(t *testing.T, c contractCase) {
	t.Helper()
	c = c.withStatus(t, v2Of(t, c.answer(t)).Status)
	h := c.hooks(c.now)
	first := answerTo(t, h, c.hook, c.body)
	for range 2 {
		sameBytes(t, first, answerTo(t, h, c.hook, c.body), "called again")
	}
}

func TestContractResyncsWhilePending(t *testing.T) {
	forEachCase(t, resyncsWhilePending, "sync", "finalize")
}

func resyncsWhilePending(t *testing.T, c contractCase) {
	t.Helper()
	a := v2Of(t, c.answer(t))
	pending := a.phase() != string(v1alpha1.PhaseReady) && a.phase() != string(v1alpha1.PhaseUnhealthy)
	living := livingIn(t, c.body)
	for _, child := range a.listed() {
		pending = pending || !slices.Contains(living, child)
	}
	if pending && !*a.Finalized {
		require.Positive(t, *a.ResyncAfterSeconds, a.phase())
	}
	require.False(t, *a.Finalized && *a.ResyncAfterSeconds > 0, "nothing is left to look at")
}

func TestContractStatusMakesSense(t *testing.T) {
	forEachCase(t, func(t *testing.T, c contractCase) {
		a := v2Of(t, c.answer(t))
		s := typedStatus(t, a)
		require.EqualValues(t, at(decodedJSON(t, c.body), "parent", "metadata", "generation"), s.ObservedGeneration)
		require.Len(t, s.Conditions, 2)
		provisioned := meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionProvisioned)
		require.Equal(t, provisioned, s.IP != "", "an address exactly when there is something to use")
		require.Equal(t, provisioned, s.Port != 0)
		switch s.Phase {
		case v1alpha1.PhaseReady:
			require.True(t, provisioned && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionHealthy))
			require.NotEmpty(t, s.InstanceID)
		case v1alpha1.PhaseFailed:
			require.False(t, provisioned, "Failed only without an instance")
		}
		require.Equal(t, c.hook == "finalize", s.Phase == v1alpha1.PhaseDeleting)
	}, "sync", "finalize")
}

func typedStatus(t testing.TB, a v2Answer) v1alpha1.ProxyStatus {
	t.Helper()
	return readV2[v1alpha1.ProxyStatus](t, mustJSON(t, a.Status))
}

// A VM is no child, so no answer ends it; requests to the adapter do. Such a request
// names the instance whose replacement is in the status of this answer or of the
// previous one. While the adapter gives no state, the status keeps the instance.
func TestContractUnknownKeepsVMs(t *testing.T) {
	replaced, silent := 0, 0
	forEachCase(t, func(t *testing.T, c contractCase) {
		if c.cloud == nil {
			return
		}
		before := text(decodedJSON(t, c.body), "parent", "status", "instanceID")
		a := v2Of(t, c.answer(t))
		for _, kill := range c.cloud.kills() {
			require.Equal(t, "PUT", kill.Method, "a sync deletes nothing")
			decided := a.reason() == v1alpha1.ReasonReplacing && kill.Put.Replace == text(a.Status, "instanceID")
			begun := kill.Put.Replace == before && reasonBefore(t, c.body) == v1alpha1.ReasonReplacing
			require.True(t, decided || begun, "replaces %s", kill.Put.Replace)
			replaced++
		}
		if len(c.cloud.calls) == 0 || c.cloud.err == nil {
			return
		}
		silent++
		status := at(decodedJSON(t, c.body), "parent", "status")
		for _, field := range []string{"ip", "providerID", "instanceID"} {
			require.Equal(t, text(status, field), text(a.Status, field), field)
		}
		require.True(t, before == "" || a.reason() != v1alpha1.ReasonCloudAdapterUnavailable, "that is for Proxies without an instance")
		if !slices.Contains(a.listed(), "ProxyProbe fra-1") {
			require.NotContains(t, livingIn(t, c.body), "ProxyProbe fra-1", "nor does the ProxyProbe go")
		}
	}, "sync")
	require.Greater(t, replaced, 5)
	require.Greater(t, silent, 5)
}

// reasonBefore is the reason of the Provisioned condition in a request.
func reasonBefore(t testing.TB, body []byte) string {
	t.Helper()
	conditions, _ := at(decodedJSON(t, body), "parent", "status", "conditions").(list)
	for _, c := range conditions {
		if text(c, "type") == v1alpha1.ConditionProvisioned {
			return text(c, "reason")
		}
	}
	return ""
}
