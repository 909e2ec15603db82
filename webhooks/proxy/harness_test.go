package proxy

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

func testTiming() Timing {
	return Timing{ProvisioningDeadline: 10 * time.Minute, ProvisioningPoll: 5 * time.Second, DriftPoll: time.Minute, RemovalPoll: 7 * time.Second, BudgetPoll: 3 * time.Second, QuotaRetry: 5 * time.Minute}
}

// decide decides about o, as the hooks would have observed it.
func decide(o Observation) (Decision, error) {
	o.Wanted = o.Want()
	return Decide(&o)
}

// asksBudget is AsksBudget of o, as the hooks would have observed it.
func asksBudget(o Observation) bool {
	o.Wanted = o.Want()
	return o.AsksBudget()
}

// transitions are the Events of d.
func transitions(o Observation, d *Decision) []Event {
	o.Wanted = o.Want()
	return Transitions(&o, d)
}

// observation is one at noon of p, without an instance.
func observation(p *v1alpha1.Proxy) Observation {
	return Observation{Proxy: p, Provider: &Provider{}, Instance: Absent(), Timing: testTiming(), Now: proxytest.Noon()}
}

// runningInstance is the Pod of proxytest.Managed, up to date.
func runningInstance() Instance {
	return Instance{
		State: InstanceRunning, ProviderID: "crawl/proxy-x", ID: proxytest.PodID,
		IP: "10.1.2.3", Port: 3128, SpecHash: proxytest.Hash(proxytest.Managed()), CreatedAt: proxytest.Noon().Add(-time.Minute),
	}
}

// unavailable is the reply of an adapter that does not answer.
func unavailable() *BlockReason {
	return &BlockReason{v1alpha1.ReasonCloudAdapterUnavailable, "the cloud adapter does not answer; see its log and that of webhooks"}
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return b
}
