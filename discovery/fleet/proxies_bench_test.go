package fleet

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

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
