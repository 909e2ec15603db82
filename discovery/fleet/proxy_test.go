package fleet

import (
	"encoding/json"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// FuzzWatch has the watches bring anything at all, also what the CRD forbids. What
// is offered can be used, no sign of life is from the future, and no ProxyProbe has
// anything offered that is not without it.
func FuzzWatch(f *testing.F) {
	const probe = `{"metadata":{"namespace":"n","name":"a","ownerReferences":[{"uid":"u","controller":true}]},"status":{"instanceID":"i","verdict":"Unhealthy","reason":"DialFailed","lastProbeTime":"2026-11-01T11:59:00Z"}}`
	f.Add([]byte(`{"apiVersion":"crawl.example.com/v1alpha1","kind":"Proxy","metadata":{"namespace":"n","name":"a","uid":"u","generation":2},"spec":{"mode":"Managed","maxLeases":3,"attributes":{"geo":"eu"},"credentialsRef":{"name":"c"}},"status":{"phase":"Ready","ip":"10.0.0.7","port":3128,"instanceID":"i","observedGeneration":2,"latencyMillis":9223372036854775807,"conditions":[{"type":"Healthy","status":"True","reason":"ProbeSucceeded"}]}}`),
		[]byte(`{"metadata":{"name":"prober-0","labels":{"crawl.example.com/prober-shard":"0-of-1"}},"spec":{"renewTime":"2026-11-01T12:00:00.000000Z"}}`), []byte(probe))
	f.Add([]byte(`{"metadata":{"namespace":"n","name":"a","deletionTimestamp":"x"},"spec":{"maxLeases":-1},"status":{"phase":"Ready","ip":"x","port":-7}}`),
		[]byte(`{"metadata":{"name":"prober-9","labels":{"crawl.example.com/prober-shard":"9-of-99"}},"spec":{"renewTime":"9999-01-01T00:00:00.000000Z"}}`), []byte(`{"metadata":{"namespace":"n","name":"a","ownerReferences":7},"status":{"verdict":"Dead"}}`))
	f.Add([]byte(`{"metadata":{"namespace":"n","name":"a","uid":"u"},"status":{"phase":"Ready","ip":"10.0.0.7","port":70000}}`),
		[]byte(`{"metadata":{"name":"prober-0","labels":{"crawl.example.com/prober-shard":"0-of-1"}},"spec":{"renewTime":"2026-11-01T12:00:00.000000Z"}}`), []byte(probe))
	f.Add([]byte(`{"metadata":7,"status":[]}`), []byte(`{}`), []byte(`[]`))
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, proxyText, leaseText, probeText []byte) {
		var content, probed map[string]any
		var renewed coordinationv1.Lease
		if json.Unmarshal(proxyText, &content) != nil || json.Unmarshal(leaseText, &renewed) != nil || json.Unmarshal(probeText, &probed) != nil {
			return // the client's own decoder refuses it
		}
		log, changed := slog.New(slog.DiscardHandler), &lease.Signal{}
		shards := newProberLeases(clocktesting.NewFakePassiveClock(now), log, changed)
		require.NoError(t, shards.Add(&renewed))
		for _, r := range shards.list() {
			require.False(t, r.At.After(now), "from the future")
		}
		store := newProxies(log, changed)
		u := &unstructured.Unstructured{Object: content}
		require.NoError(t, store.Add(u))
		require.NoError(t, store.Update(u))
		offered := func() bool {
			return slices.ContainsFunc(store.all(), func(p *Proxy) bool { ok, _ := Leasable(p, NewFreshness(shards.list(), now, time.Minute)); return ok })
		}
		before := offered()
		probes := newProbes(log, store, changed)
		require.NoError(t, probes.Add(&unstructured.Unstructured{Object: probed}))
		require.True(t, before || !offered(), "a ProxyProbe has it offered")
		list := store.all()
		require.LessOrEqual(t, len(list), 1)
		for _, p := range list {
			fresh := NewFreshness(shards.list(), now, time.Minute)
			ok, reason := Leasable(p, fresh)
			require.Equal(t, ok, reason == ReasonNone)
			require.Equal(t, ok, Explain(p, fresh, reason) == "")
			if ok {
				require.True(t, p.MaxLeases > 0 && p.Host != "" && p.Port > 0 && p.Port < 1<<16 && p.Phase == v1alpha1.PhaseReady && !p.Deleting)
			}
		}
		require.NoError(t, store.Delete(u))
		require.Empty(t, store.all())
	})
}
