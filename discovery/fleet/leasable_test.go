package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// readyProxy may be leased; tests change one thing about it.
func readyProxy() *v1alpha1.Proxy {
	return &v1alpha1.Proxy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crawl", Name: "a", UID: "11111111-2222-3333-4444-555555555555", Generation: 3},
		Spec: v1alpha1.ProxySpec{
			Mode:       v1alpha1.ModeManaged,
			MaxLeases:  ptr.To[int32](2),
			Attributes: map[string]v1alpha1.AttributeValue{"geo": "eu", "tier": "gold"},
		},
		Status: v1alpha1.ProxyStatus{
			Phase: v1alpha1.PhaseReady, IP: "10.0.0.7", Port: 3129, InstanceID: "pod-uid", ObservedGeneration: 3, LatencyMillis: ptr.To[int64](42),
			Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionProvisioned, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCreated},
				{Type: v1alpha1.ConditionHealthy, Status: metav1.ConditionTrue, Reason: "ProbeSucceeded"},
			},
		},
	}
}

func aliveProber() Freshness {
	return NewFreshness([]Renewal{{Shard: v1alpha1.Shard{Index: 0, Count: 1}, At: now}}, now, time.Minute)
}

// leasableCase is one change of readyProxy, and what becomes of it.
type leasableCase struct {
	change  func(*v1alpha1.Proxy)
	fresh   *Freshness
	want    Reason
	explain string
}

func leasableCases() map[string]leasableCase {
	stale := NewFreshness(nil, now, time.Minute)
	return map[string]leasableCase{
		"ready": {change: func(*v1alpha1.Proxy) {}},
		"ready External": {change: func(p *v1alpha1.Proxy) {
			p.Spec.Mode, p.Spec.Endpoint = v1alpha1.ModeExternal, &v1alpha1.Endpoint{Host: "proxy.example", Port: 8080}
			p.Status.IP, p.Status.Port = "proxy.example", 8080
		}},
		"maxLeases left to its default": {change: func(p *v1alpha1.Proxy) { p.Spec.MaxLeases = nil }},
		"deleting": {
			change: func(p *v1alpha1.Proxy) { p.DeletionTimestamp = ptr.To(metav1.NewTime(now)) },
			want:   ReasonDeleting, explain: "the Proxy is being deleted",
		},
		"maxLeases 0": {
			change: func(p *v1alpha1.Proxy) { p.Spec.MaxLeases = ptr.To[int32](0) },
			want:   ReasonLeasingDisabled, explain: "spec.maxLeases is 0",
		},
		"unhealthy": {
			change: func(p *v1alpha1.Proxy) {
				p.Status.Phase = v1alpha1.PhaseUnhealthy
				p.Status.Conditions[1].Status, p.Status.Conditions[1].Reason = metav1.ConditionFalse, "DialFailed"
			},
			want: ReasonUnhealthy, explain: "probes through it fail (DialFailed)",
		},
		"provisioning": {
			change: func(p *v1alpha1.Proxy) {
				p.Status.Phase = v1alpha1.PhaseProvisioning
				p.Status.Conditions[0].Status, p.Status.Conditions[0].Reason = metav1.ConditionFalse, "Provisioning"
			},
			want: ReasonNotReady, explain: "its phase is Provisioning (Provisioning)",
		},
		"probing":        {change: func(p *v1alpha1.Proxy) { p.Status.Phase = v1alpha1.PhaseProbing }, want: ReasonNotReady},
		"replacing":      {change: func(p *v1alpha1.Proxy) { p.Status.Phase = v1alpha1.PhaseReplacing }, want: ReasonNotReady},
		"failed":         {change: func(p *v1alpha1.Proxy) { p.Status.Phase = v1alpha1.PhaseFailed }, want: ReasonNotReady},
		"phase deleting": {change: func(p *v1alpha1.Proxy) { p.Status.Phase = v1alpha1.PhaseDeleting }, want: ReasonNotReady},
		"a phase to come": {
			change: func(p *v1alpha1.Proxy) { p.Status.Phase = "Paused" },
			want:   ReasonNotReady, explain: "its phase is Paused (ProbeSucceeded)",
		},
		"no status yet": {
			change: func(p *v1alpha1.Proxy) { p.Status = v1alpha1.ProxyStatus{} },
			want:   ReasonNotReady, explain: "it has no status yet",
		},
		"edited": {
			change: func(p *v1alpha1.Proxy) { p.Generation = 4 },
			want:   ReasonStatusOutdated, explain: "its status is of generation 3, and its spec of generation 4",
		},
		"no address": {change: func(p *v1alpha1.Proxy) { p.Status.IP = "" }, want: ReasonNoAddress},
		"no port":    {change: func(p *v1alpha1.Proxy) { p.Status.Port = 0 }, want: ReasonNoAddress},
		"no prober": {
			change: func(*v1alpha1.Proxy) {}, fresh: &stale,
			want: ReasonVerdictStale, explain: "no prober has ever renewed a Lease: is one running?",
		},
		"unhealthy, and stale too": {
			change: func(p *v1alpha1.Proxy) { p.Status.Phase = v1alpha1.PhaseUnhealthy }, fresh: &stale, want: ReasonUnhealthy,
		},
	}
}

func TestLeasable(t *testing.T) {
	for name, tt := range leasableCases() {
		t.Run(name, func(t *testing.T) {
			obj, fresh := readyProxy(), aliveProber()
			tt.change(obj)
			if tt.fresh != nil {
				fresh = *tt.fresh
			}
			p := FromAPI(obj)
			ok, reason := Leasable(p, fresh)
			assert.Equal(t, tt.want, reason)
			assert.Equal(t, tt.want == ReasonNone, ok)
			text := Explain(p, fresh, reason)
			assert.Equal(t, ok, text == "", "a refusal explains itself, and nothing else does")
			if tt.explain != "" {
				assert.Equal(t, tt.explain, text)
			}
		})
	}
}

func TestFromAPI(t *testing.T) {
	obj := readyProxy()
	obj.Spec.CredentialsRef = &v1alpha1.CredentialsRef{Name: "login"}
	p := FromAPI(obj)
	assert.Equal(t, "crawl/a", p.Candidate.Proxy)
	assert.Equal(t, "crawl", p.Namespace)
	assert.Equal(t, "a", p.Name)
	assert.Equal(t, string(obj.UID), p.ProxyUID)
	assert.Equal(t, "pod-uid", p.ID)
	assert.Equal(t, 2, p.MaxLeases)
	assert.EqualValues(t, 42, p.LatencyMillis)
	assert.Equal(t, map[string]string{"geo": "eu", "tier": "gold"}, p.Attributes)
	assert.True(t, p.Healthy)
	assert.Equal(t, "ProbeSucceeded", p.Reason)
	assert.Equal(t, "10.0.0.7", p.Host)
	assert.EqualValues(t, 3129, p.Port, "the running instance's, not the spec's")
	assert.Equal(t, "login", p.CredentialsSecret)

	bare := FromAPI(&v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m"}})
	assert.EqualValues(t, v1alpha1.DefaultMaxLeases, bare.MaxLeases)
	assert.False(t, bare.Healthy)
	assert.NotNil(t, bare.Attributes, "lists as {} and not as null")
}

func TestMatches(t *testing.T) {
	p := FromAPI(readyProxy())
	tests := []struct {
		selector map[string]string
		want     bool
	}{
		{nil, true},
		{map[string]string{}, true},
		{map[string]string{"geo": "eu"}, true},
		{map[string]string{"geo": "eu", "tier": "gold"}, true},
		{map[string]string{"geo": "us"}, false},
		{map[string]string{"geo": "eu", "tier": "iron"}, false},
		{map[string]string{"Geo": "eu"}, false},
		{map[string]string{"missing": ""}, false},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, p.Matches(tt.selector), "%v", tt.selector)
	}
}
