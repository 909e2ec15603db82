package fleet

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

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
