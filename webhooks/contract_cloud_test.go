package webhooks

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// A VM is no child, so that nothing in an answer ends it: calls of the adapter
// do. Those that can, name the instance whose replacement the answer, or the one
// before it, has told of. And while the adapter does not tell, the status goes on
// saying what is there.
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
