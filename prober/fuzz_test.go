package prober

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// FuzzProxyProbe has the watch bring anything at all, also what the CRD forbids:
// another version of it may be installed, and anybody may have written the status.
// The prober neither fails nor hurries, and what it would write fits the CRD.
func FuzzProxyProbe(f *testing.F) {
	f.Add([]byte(`{"metadata":{"namespace":"n","name":"a","uid":"u"},"spec":{"instanceID":"i","host":"10.0.0.1","port":3128}}`), []byte(`{}`))
	f.Add([]byte(`{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"7"},"spec":{"instanceID":"i","host":"h","port":-1,"healthCheck":{"interval":"-1s","timeout":"0s","failureThreshold":-3,"successThreshold":0}},"status":{"instanceID":"i","verdict":"Healthy","latencyMillis":9223372036854775807,"lastProbeTime":"9999-01-01T00:00:00Z","lastTransitionTime":"0001-01-01T00:00:00Z","exitIP":"x"}}`),
		[]byte(`{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"x"},"spec":{"instanceID":"i","host":"h","port":-1},"status":{"instanceID":"i","verdict":"Unhealthy","latencyMillis":-5}}`))
	f.Add([]byte(`{"status":{"verdict":"Maybe"}}`), []byte(`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		var first, second v1alpha1.ProxyProbe
		if json.Unmarshal(before, &first) != nil || json.Unmarshal(after, &second) != nil {
			return // the client's own decoder refuses it
		}
		r := &rig{t: t, clock: clocktesting.NewFakeClock(epoch()), pending: map[types.NamespacedName]int{}, reg: prometheus.NewRegistry()}
		r.engine = newEngine(nil, v1alpha1.Shard{Count: 1}, 4, r.clock, newMetrics(r.reg), quiet())
		r.engine.leading = true
		for _, p := range []*v1alpha1.ProxyProbe{&first, &second} {
			require.NoError(t, r.engine.Update(p))
			r.probeAFew(t)
		}
		require.NoError(t, r.engine.Replace(nil, ""))
		require.Empty(t, r.engine.targets)
	})
}

// probeAFew lets an hour go by in which the targets are probed, and looks at what
// would be written about them.
func (r *rig) probeAFew(t *testing.T) {
	t.Helper()
	for range 6 {
		r.clock.Step(10 * time.Minute)
		jobs := r.handed()
		require.LessOrEqual(t, len(jobs), 2, "each is probed once at a time")
		for _, j := range jobs {
			require.Positive(t, j.order.interval())
			require.Positive(t, j.order.healthCheck.Timeout.Duration)
			r.engine.finish(j, probe.Result{Outcome: probe.Success, Reason: probe.ReasonProbeSucceeded, Start: r.clock.Now(), Latency: time.Millisecond})
		}
		require.Empty(t, r.handed(), "nothing is due again at once")
		for _, target := range r.engine.targets {
			st := target.status()
			require.GreaterOrEqual(t, *st.LatencyMillis, int64(0))
			require.Contains(t, []v1alpha1.Verdict{v1alpha1.VerdictHealthy, v1alpha1.VerdictUnhealthy, v1alpha1.VerdictUnknown}, st.Verdict)
			require.LessOrEqual(t, len(st.Message), maxMessage*4)
		}
	}
}
