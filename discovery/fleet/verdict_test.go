package fleet

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// probeOf is the ProxyProbe of p with a verdict on its instance, reached a minute
// after the probe that the status of p rests on.
func probeOf(p *v1alpha1.Proxy, v v1alpha1.Verdict, reason string) *v1alpha1.ProxyProbe {
	return &v1alpha1.ProxyProbe{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: "probe-uid", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "crawl.example.com/v1alpha1", Kind: "Proxy", Name: p.Name, UID: p.UID, Controller: ptr.To(true)},
		}},
		Status: v1alpha1.ProxyProbeStatus{
			InstanceID: p.Status.InstanceID, Verdict: v, Reason: reason, LastProbeTime: ptr.To(metav1.NewTime(now.Add(time.Minute))),
		},
	}
}

func probeObject(t testing.TB, p *v1alpha1.ProxyProbe) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	require.NoError(t, err)
	return &unstructured.Unstructured{Object: content}
}

func TestProxyUnderItsProbe(t *testing.T) {
	const unhealthy, unknown = v1alpha1.VerdictUnhealthy, v1alpha1.VerdictUnknown
	checked := func(at time.Time) func(*v1alpha1.Proxy) {
		return func(p *v1alpha1.Proxy) { p.Status.LastHealthCheckTime = ptr.To(metav1.NewTime(at)) }
	}
	inPhase := func(phase v1alpha1.Phase) func(*v1alpha1.Proxy) {
		return func(p *v1alpha1.Proxy) { p.Status.Phase = phase }
	}
	for name, tt := range map[string]struct {
		verdict v1alpha1.Verdict
		proxy   func(*v1alpha1.Proxy)
		probe   func(*v1alpha1.ProxyProbe)
		want    Reason
		phase   v1alpha1.Phase // Ready by default
	}{
		"healthy":                                {verdict: v1alpha1.VerdictHealthy},
		"unhealthy":                              {verdict: unhealthy, want: ReasonUnhealthy, phase: v1alpha1.PhaseUnhealthy},
		"nothing known any more":                 {verdict: unknown, want: ReasonNotReady, phase: v1alpha1.PhaseProbing},
		"no verdict yet":                         {verdict: ""},
		"held while the target is down":          {verdict: v1alpha1.VerdictHealthy, probe: func(p *v1alpha1.ProxyProbe) { p.Status.Reason = v1alpha1.ReasonProbeTargetDown }},
		"of an instance before":                  {verdict: unhealthy, probe: func(p *v1alpha1.ProxyProbe) { p.Status.InstanceID = "another" }},
		"of an instance that no status tells of": {verdict: unhealthy, proxy: func(p *v1alpha1.Proxy) { p.Status.InstanceID = "another" }},
		"of a Proxy before of that name":         {verdict: unhealthy, probe: func(p *v1alpha1.ProxyProbe) { p.OwnerReferences[0].UID = "another" }},
		"without an owner":                       {verdict: unhealthy, probe: func(p *v1alpha1.ProxyProbe) { p.OwnerReferences = nil }},
		"owned and not controlled":               {verdict: unhealthy, probe: func(p *v1alpha1.ProxyProbe) { p.OwnerReferences[0].Controller = nil }},
		"about to go": {
			verdict: unhealthy, probe: func(p *v1alpha1.ProxyProbe) { p.DeletionTimestamp = ptr.To(metav1.NewTime(now)) },
			want: ReasonUnhealthy, phase: v1alpha1.PhaseUnhealthy,
		},
		"of a spec before": { // an edited health check leaves verdicts standing
			verdict: unhealthy, probe: func(p *v1alpha1.ProxyProbe) { p.Generation, p.Status.ObservedGeneration = 2, 1 },
			want: ReasonUnhealthy, phase: v1alpha1.PhaseUnhealthy,
		},
		"later than the status":                 {verdict: unhealthy, proxy: checked(now), want: ReasonUnhealthy, phase: v1alpha1.PhaseUnhealthy},
		"of the same second as the status":      {verdict: unhealthy, proxy: checked(now.Add(time.Minute)), want: ReasonUnhealthy, phase: v1alpha1.PhaseUnhealthy},
		"before that which the status tells of": {verdict: unhealthy, proxy: checked(now.Add(time.Minute + time.Second))},
		"without a time": {
			verdict: unhealthy, probe: func(p *v1alpha1.ProxyProbe) { p.Status.LastProbeTime = nil },
			want: ReasonUnhealthy, phase: v1alpha1.PhaseUnhealthy,
		},
		"healthy, and the status says no":          {verdict: v1alpha1.VerdictHealthy, proxy: inPhase(v1alpha1.PhaseUnhealthy), want: ReasonUnhealthy, phase: v1alpha1.PhaseUnhealthy},
		"healthy, and the status says not yet":     {verdict: v1alpha1.VerdictHealthy, proxy: inPhase(v1alpha1.PhaseProbing), want: ReasonNotReady, phase: v1alpha1.PhaseProbing},
		"unhealthy, while it is replaced":          {verdict: unhealthy, proxy: inPhase(v1alpha1.PhaseReplacing), want: ReasonNotReady, phase: v1alpha1.PhaseReplacing},
		"unknown, after the status said unhealthy": {verdict: unknown, proxy: inPhase(v1alpha1.PhaseUnhealthy), want: ReasonUnhealthy, phase: v1alpha1.PhaseUnhealthy},
	} {
		t.Run(name, func(t *testing.T) {
			obj := readyProxy()
			probe := probeOf(obj, tt.verdict, "DialFailed")
			if tt.proxy != nil {
				tt.proxy(obj)
			}
			if tt.probe != nil {
				tt.probe(probe)
			}
			if tt.phase == "" {
				tt.phase = v1alpha1.PhaseReady
			}
			byStatus := FromAPI(obj)
			got := byStatus.withVerdict(verdictAgainst(probe))
			_, reason := Leasable(got, aliveProber())
			assert.Equal(t, tt.want, reason)
			assert.Equal(t, tt.phase, got.Phase)
			assert.Equal(t, byStatus.Phase != tt.phase, got.VerdictAhead)
			assert.Same(t, byStatus, got.withVerdict(nil), "what the status says is not lost")
		})
	}
}

// The proxy equals the one with the later status, and its message names the
// ProxyProbe.
func TestVerdictAheadOfStatus(t *testing.T) {
	obj := readyProxy()
	byStatus := FromAPI(obj)
	p := byStatus.withVerdict(verdictAgainst(probeOf(obj, v1alpha1.VerdictUnhealthy, "DialFailed")))
	assert.True(t, p.VerdictAhead)
	assert.False(t, p.Healthy)
	assert.Equal(t, "DialFailed", p.Reason)
	assert.Equal(t, "probes through it fail (DialFailed), by its ProxyProbe; the hooks have not updated its status yet", Explain(p, aliveProber(), ReasonUnhealthy))
	assert.Equal(t, byStatus.Candidate, p.Candidate, "lease stores see the same proxy")
	assert.True(t, byStatus.Healthy, "one that somebody has does not change")

	assert.Same(t, p, p.withVerdict(verdictAgainst(probeOf(obj, v1alpha1.VerdictUnhealthy, "DialFailed"))), "the same again is no change")
	again := p.withVerdict(verdictAgainst(probeOf(obj, v1alpha1.VerdictUnknown, "TargetRefused")))
	assert.Equal(t, v1alpha1.PhaseProbing, again.Phase)
	assert.Equal(t, "its verdict is Unknown (TargetRefused), by its ProxyProbe; the hooks have not updated its status yet", Explain(again, aliveProber(), ReasonNotReady))
	assert.Same(t, byStatus, again.withVerdict(nil))
}

// stores are both stores, and record changes.
type stores struct {
	*testing.T
	proxies *proxies
	probes  *objectStore[*probeRecord]
}

func newStores(t *testing.T) *stores {
	t.Helper()
	proxies := newProxies(testLog(), &lease.Signal{})
	return &stores{T: t, proxies: proxies, probes: newProbes(testLog(), proxies, proxies.changed)}
}

// reason is why crawlers do not get the proxy of readyProxy, "absent" when there is
// none.
func (s *stores) reason() Reason {
	p := Snapshot{Proxies: s.proxies.all()}.Find("crawl/a")
	if p == nil {
		return "absent"
	}
	_, r := Leasable(p, aliveProber())
	return r
}

// changes reports whether what is done wakes those who wait for a change.
func (s *stores) changes(do func() error) bool {
	s.Helper()
	changed := s.proxies.changed.C()
	require.NoError(s, do())
	select {
	case <-changed:
		return true
	default:
		return false
	}
}

// TestVerdictsAndProxiesComeInAnyOrder: what is offered depends on what was seen
// last of each, and not on which came first.
func TestVerdictsAndProxiesComeInAnyOrder(t *testing.T) {
	s := newStores(t)
	ready := object(t, "crawl", "a")
	bad := probeObject(t, probeOf(readyProxy(), v1alpha1.VerdictUnhealthy, "DialFailed"))
	good := probeObject(t, probeOf(readyProxy(), v1alpha1.VerdictHealthy, "ProbeSucceeded"))

	assert.False(t, s.changes(func() error { return s.probes.Add(bad) }), "of a proxy that nobody knows")
	require.NoError(t, s.proxies.Replace([]any{ready}, "1"))
	assert.Equal(t, ReasonUnhealthy, s.reason(), "the list of proxies came later")
	assert.True(t, s.changes(func() error { return s.probes.Update(good) }))
	assert.Equal(t, ReasonNone, s.reason())
	assert.False(t, s.changes(func() error { return s.probes.Update(good) }), "of which a healthy fleet sends many")

	assert.True(t, s.changes(func() error { return s.probes.Update(bad) }))
	assert.False(t, s.changes(func() error { return s.probes.Update(bad) }))
	require.NoError(t, s.proxies.Update(ready))
	assert.Equal(t, ReasonUnhealthy, s.reason(), "another event of the Proxy makes no difference")
	require.NoError(t, s.proxies.Delete(ready))
	assert.Equal(t, Reason("absent"), s.reason())
	require.NoError(t, s.proxies.Add(ready))
	assert.Equal(t, ReasonUnhealthy, s.reason())

	require.NoError(t, s.probes.Delete(bad))
	assert.Equal(t, ReasonNone, s.reason(), "what is gone says nothing")
	assert.Empty(t, s.proxies.verdicts)
}

// A recovered proxy is leasable by its status, also when that arrives before the
// ProxyProbe.
func TestStatusNewerThanVerdict(t *testing.T) {
	s := newStores(t)
	with := func(change func(*v1alpha1.ProxyStatus)) *unstructured.Unstructured {
		p := readyProxy()
		change(&p.Status)
		return proxyObject(t, p)
	}
	require.NoError(t, s.proxies.Add(with(func(st *v1alpha1.ProxyStatus) { st.LastHealthCheckTime = ptr.To(metav1.NewTime(now)) })))
	require.NoError(t, s.probes.Add(probeObject(t, probeOf(readyProxy(), v1alpha1.VerdictUnhealthy, "DialFailed"))))
	require.Equal(t, ReasonUnhealthy, s.reason())
	require.True(t, s.proxies.all()[0].VerdictAhead)

	require.NoError(t, s.proxies.Update(with(func(st *v1alpha1.ProxyStatus) {
		st.Phase, st.LastHealthCheckTime = v1alpha1.PhaseUnhealthy, ptr.To(metav1.NewTime(now.Add(time.Minute)))
	})))
	require.Equal(t, ReasonUnhealthy, s.reason())
	require.False(t, s.proxies.all()[0].VerdictAhead)

	require.NoError(t, s.proxies.Update(with(func(st *v1alpha1.ProxyStatus) {
		st.LastHealthCheckTime = ptr.To(metav1.NewTime(now.Add(2 * time.Minute)))
	})))
	assert.Equal(t, ReasonNone, s.reason())
}

// A list also removes verdicts whose deletion the watch has missed.
func TestListReplacesAllVerdicts(t *testing.T) {
	s := newStores(t)
	require.NoError(t, s.proxies.Replace([]any{object(t, "crawl", "a"), object(t, "crawl", "b")}, "1"))
	probe := func(name string, v v1alpha1.Verdict) any {
		p := readyProxy()
		p.Name = name
		record, err := s.probes.Transformer()(probeObject(t, probeOf(p, v, "")))
		require.NoError(t, err)
		return record
	}
	offered := func() (out []string) {
		for _, p := range s.proxies.all() {
			if ok, _ := Leasable(p, aliveProber()); ok {
				out = append(out, p.Name)
			}
		}
		return out
	}
	require.False(t, s.probes.synced.Load())
	assert.True(t, s.changes(func() error {
		return s.probes.Replace([]any{probe("a", v1alpha1.VerdictUnhealthy), probe("b", v1alpha1.VerdictHealthy)}, "1")
	}))
	assert.True(t, s.probes.synced.Load())
	assert.Equal(t, []string{"b"}, offered())
	require.NoError(t, s.probes.Replace([]any{probe("a", v1alpha1.VerdictHealthy), probe("b", v1alpha1.VerdictUnhealthy)}, "2"))
	assert.Equal(t, []string{"a"}, offered())
	require.NoError(t, s.probes.Replace(nil, "3"))
	assert.Equal(t, []string{"a", "b"}, offered())
	assert.Empty(t, s.proxies.verdicts)
	require.NoError(t, s.probes.Resync())
}

// TestOnlyWhatSpeaksAgainstAProxyIsKept: a fleet that is well has as many ProxyProbes
// as proxies, and they take no memory.
func TestOnlyWhatSpeaksAgainstAProxyIsKept(t *testing.T) {
	s := newStores(t)
	for _, v := range []v1alpha1.Verdict{"", v1alpha1.VerdictHealthy} {
		require.NoError(t, s.probes.Add(probeObject(t, probeOf(readyProxy(), v, ""))))
	}
	assert.Empty(t, s.proxies.verdicts)
	w, err := s.probes.Transformer()(probeObject(t, probeOf(readyProxy(), v1alpha1.VerdictHealthy, "")))
	require.NoError(t, err)
	assert.Equal(t, &probeRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "crawl", Name: "a"}}, w)
}

func TestMalformedProxyProbeIsLoggedAndIgnored(t *testing.T) {
	var out bytes.Buffer
	s := newStores(t)
	s.probes = newProbes(slog.New(slog.NewTextHandler(&out, nil)), s.proxies, s.proxies.changed)
	require.NoError(t, s.proxies.Add(object(t, "crawl", "a")))
	odd := probeObject(t, probeOf(readyProxy(), v1alpha1.VerdictUnhealthy, ""))
	require.NoError(t, s.probes.Add(odd))
	require.Equal(t, ReasonUnhealthy, s.reason())
	require.NoError(t, unstructured.SetNestedField(odd.Object, "soon", "status", "latencyMillis"))
	require.NoError(t, s.probes.Update(odd))
	assert.Equal(t, ReasonNone, s.reason())
	assert.Contains(t, out.String(), "proxy=a")

	for _, call := range []func(any) error{s.probes.Add, s.probes.Update, s.probes.Delete, func(obj any) error { return s.probes.Replace([]any{obj}, "1") }} {
		assert.ErrorContains(t, call(&metav1.Status{}), "*v1.Status")
	}
	assert.False(t, s.probes.synced.Load())
}

// The verdict of its predecessor does not apply.
func TestRecreatedProxy(t *testing.T) {
	s := newStores(t)
	require.NoError(t, s.probes.Add(probeObject(t, probeOf(readyProxy(), v1alpha1.VerdictUnhealthy, ""))))
	next := object(t, "crawl", "a")
	next.SetUID(types.UID("another"))
	require.NoError(t, s.proxies.Add(next))
	assert.Equal(t, ReasonNone, s.reason())
}
