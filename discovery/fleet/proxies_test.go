package fleet

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"runtime"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"k8s.io/apimachinery/pkg/types"
)

func object(t testing.TB, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	p := readyProxy()
	p.Namespace, p.Name = namespace, name
	return proxyObject(t, p)
}

func proxyObject(t testing.TB, p *v1alpha1.Proxy) *unstructured.Unstructured {
	t.Helper()
	content, err := apiruntime.DefaultUnstructuredConverter.ToUnstructured(p)
	require.NoError(t, err)
	return &unstructured.Unstructured{Object: content}
}

func names(s *proxies) []string {
	var out []string
	for _, p := range s.all() {
		out = append(out, p.Candidate.Proxy)
	}
	return out
}

func TestProxiesFollowEvents(t *testing.T) {
	s := newProxies(testLog(), &lease.Signal{})
	require.NoError(t, s.Replace([]any{object(t, "b", "y"), object(t, "a", "z"), object(t, "b", "x")}, "1"))
	assert.Equal(t, []string{"a/z", "b/x", "b/y"}, names(s))

	before := s.all()
	require.NoError(t, s.Add(object(t, "b", "a")))
	changed := object(t, "b", "x")
	require.NoError(t, unstructured.SetNestedField(changed.Object, "Unhealthy", "status", "phase"))
	require.NoError(t, s.Update(changed))
	require.NoError(t, s.Delete(object(t, "b", "y")))
	require.NoError(t, s.Delete(object(t, "b", "never-there")))
	assert.Equal(t, []string{"a/z", "b/a", "b/x"}, names(s))
	assert.Equal(t, v1alpha1.PhaseUnhealthy, Snapshot{Proxies: s.all()}.Find("b/x").Phase)

	assert.Len(t, before, 3, "a list once taken does not change")
	assert.Equal(t, v1alpha1.PhaseReady, before[1].Phase)
	assert.Nil(t, Snapshot{Proxies: before}.Find("b/a"))
	require.NoError(t, s.Resync())
}

// TestProxiesDoNotOfferWhatTheyCannotRead: one odd object must not take the
// others with it, and must not be offered as it was before. Its leases have not ended.
func TestProxiesDoNotOfferWhatTheyCannotRead(t *testing.T) {
	var out bytes.Buffer
	s := newProxies(slog.New(slog.NewTextHandler(&out, nil)), &lease.Signal{})
	odd := object(t, "b", "odd")
	require.NoError(t, unstructured.SetNestedField(odd.Object, "seven", "status", "port"))
	require.NoError(t, s.Replace([]any{odd, object(t, "a", "fine")}, "1"))
	assert.Equal(t, []string{"a/fine", "b/odd"}, names(s))
	assert.Contains(t, out.String(), "proxy=odd")

	odd.SetName("fine")
	odd.SetNamespace("a")
	before := Snapshot{Proxies: s.all()}.Find("a/fine")
	odd.SetUID(types.UID(before.ProxyUID))
	require.NoError(t, s.Update(odd))
	p := Snapshot{Proxies: s.all()}.Find("a/fine")
	assert.Equal(t, before.Instance, p.Instance)
	assert.Equal(t, before.Attributes, p.Attributes)
	ok, why := Leasable(p, aliveProber())
	assert.False(t, ok)
	assert.Equal(t, ReasonNotReady, why)
	assert.Contains(t, Explain(p, aliveProber(), why), "does not fit this version's types")

	assert.ErrorContains(t, s.Add(&metav1.Status{}), "*v1.Status")
	assert.Error(t, s.Delete(&metav1.Status{}))
	assert.Error(t, s.Replace([]any{&metav1.Status{}}, "2"))
}

// The list of the API has an object in "attributes", of each Proxy.
func TestUnreadableProxiesHaveAttributes(t *testing.T) {
	for name, attributes := range map[string]any{"none": nil, "no strings": map[string]any{"geo": int64(7)}, "no map": "geo", "some": map[string]any{"geo": "de"}} {
		u := object(t, "a", "odd")
		unstructured.RemoveNestedField(u.Object, "spec", "attributes")
		if attributes != nil {
			require.NoError(t, unstructured.SetNestedField(u.Object, attributes, "spec", "attributes"))
		}
		require.NoError(t, unstructured.SetNestedField(u.Object, "seven", "status", "port"))
		p := newProxies(testLog(), &lease.Signal{}).convert(u)
		assert.Equal(t, reasonUnreadable, p.Reason)
		assert.NotNil(t, p.Attributes, name)
		if name == "some" {
			assert.Equal(t, map[string]string{"geo": "de"}, p.Attributes)
		}
	}
}

func TestProxiesReadersSeeWholeLists(t *testing.T) {
	s := newProxies(testLog(), &lease.Signal{})
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for i := range 100 {
				assert.NoError(t, s.Add(object(t, "ns", fmt.Sprintf("p-%d-%02d", w, i))))
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for {
		list := s.all()
		require.True(t, slices.IsSortedFunc(list, func(a, b *Proxy) int { return compareKeys(a, b.Candidate.Proxy) }))
		select {
		case <-done:
			assert.Len(t, names(s), 200)
			return
		default:
		}
	}
}

// BenchmarkMemory reports what a proxy takes with all that watches bring of it: in a
// fleet that is well, and at worst, when the prober has found all of it dead and no
// status says so yet.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		const n = 10_000
		var objs, good, bad []any
		for i := range n {
			obj := readyProxy()
			obj.Name, obj.UID = fmt.Sprintf("proxy-%06d", i), types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
			obj.Status.InstanceID = fmt.Sprintf("00000000-0000-4000-8001-%012d", i)
			objs = append(objs, proxyObject(b, obj))
			good = append(good, probeObject(b, probeOf(obj, v1alpha1.VerdictHealthy, "ProbeSucceeded")))
			bad = append(bad, probeObject(b, probeOf(obj, v1alpha1.VerdictUnhealthy, "DialFailed")))
		}
		s := newProxies(slog.New(slog.DiscardHandler), &lease.Signal{})
		probes := newProbes(s.log, s, s.changed)
		before := heapBytes()
		require.NoError(b, s.Replace(objs, "1"))
		s.all()
		alone := heapBytes() - before
		require.NoError(b, probes.Replace(good, "1"))
		s.all()
		well := heapBytes() - before
		require.NoError(b, probes.Replace(bad, "2"))
		s.all()
		dead := heapBytes() - before
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(alone)/n, "B/proxy")
		b.ReportMetric(float64(well)/n, "B/proxy-probed")
		b.ReportMetric(float64(dead)/n, "B/proxy-found-dead")
		runtime.KeepAlive([]any{s, objs, good, bad})
	}
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkChanges is 1 % of the fleet changing, and one reader afterwards, and how
// many times that a copy of the list for each change takes.
func BenchmarkChanges(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		list := make([]*Proxy, n)
		for i := range list {
			list[i] = &Proxy{Candidate: lease.Candidate{Proxy: fmt.Sprintf("crawl/p-%06d", i)}}
		}
		s := newProxies(slog.New(slog.DiscardHandler), &lease.Signal{})
		s.list = list
		b.Run(fmt.Sprint("proxies=", n), func(b *testing.B) {
			var batched, copied time.Duration
			rounds := 0
			for b.Loop() {
				began := time.Now()
				for i := 0; i < n; i += 100 {
					s.edit(list[i].Candidate.Proxy, list[i])
				}
				if len(s.all()) != n {
					b.Fatal("proxies are lost")
				}
				batched += time.Since(began)
				began = time.Now()
				for i := 0; i < n; i += 100 {
					k, _ := slices.BinarySearchFunc(list, list[i].Candidate.Proxy, compareKeys)
					list = slices.Clone(list)
					list[k] = list[i]
				}
				copied += time.Since(began)
				rounds++
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(batched.Nanoseconds())/float64(rounds)/float64(n/100), "ns/change")
			b.ReportMetric(float64(copied)/float64(batched), "copies:batched")
		})
	}
}
