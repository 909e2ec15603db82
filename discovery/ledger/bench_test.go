package ledger

import (
	"fmt"
	"math"
	"runtime"
	"syscall"
	"testing"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// benchSelectors are 50 selectors that take turns: ten places, five qualities,
// and 35 pairs of them.
func benchSelectors() []map[string]string {
	var out []map[string]string
	for i := range 10 {
		out = append(out, map[string]string{"geo": fmt.Sprint("geo-", i)})
	}
	for i := range 5 {
		out = append(out, map[string]string{"tier": fmt.Sprint("tier-", i)})
	}
	for i := range 35 {
		out = append(out, map[string]string{"geo": fmt.Sprint("geo-", i%10), "tier": fmt.Sprint("tier-", i/10)})
	}
	return out
}

const benchTarget = "example.com"

// busy is a fleet of n that has been at work: each proxy was granted before, in
// no order that we would choose. Every fifth cools for benchTarget, and every
// fourth has a lease out.
func busy(n int) *Ledger {
	g := New(time.Hour, 0, nil)
	var all lease.Offers
	for i := range n {
		all.Changed = append(all.Changed, testOffer(i))
	}
	g.Offer(all)
	g.fence = uint64(n)
	for i := range n {
		o := testOffer(i)
		g.proxies[o.ProxyUID].rank.lastGrant = uint64(i*7919%n) + 1
		if i/50%4 == 1 {
			g.hold(&held{Record: Record{Lease: lease.Lease{ID: fmt.Sprint(i), Instance: o.Instance, Proxy: o.Proxy, ExpiresAt: start.Add(time.Hour)}}})
		}
		if i/50%5 == 1 {
			g.cool(Cooldown{ProxyUID: o.ProxyUID, Target: benchTarget, Until: start.Add(time.Hour)})
		}
	}
	return g
}

// cpuTime is what this process has had of the processor: what others do on the
// machine lengthens a benchmark's time, not this.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// batch is how many leases crawl has out at once.
const batch = 64

// crawl acquires, then releases, a batch at a time, while one in a hundred
// proxies changes each second, in between. It returns the processor time of one
// acquire, and that of one release.
func crawl(b *testing.B, g *Ledger, n, rounds int) (acquire, release time.Duration) {
	selectors := benchSelectors()
	began, changes := cpuTime(), 0
	ids := make([]string, 0, batch)
	for i := 0; i < rounds; {
		for due := int((cpuTime() - began).Seconds() * float64(n) / 100); changes < due; changes++ {
			o := testOffer((changes * 7919) % n)
			o.LatencyMillis += int64(changes % 40)
			o.Leasable = changes%3 != 0
			g.Offer(lease.Offers{Changed: []*lease.Offer{o}})
		}
		begun := cpuTime()
		for ids = ids[:0]; len(ids) < batch; i++ {
			target := benchTarget
			if i%4 == 0 {
				target = ""
			}
			l, err := g.Acquire(start, lease.Request{Selector: selectors[i%len(selectors)], Target: target, TTL: time.Minute})
			if err != nil {
				b.Fatal(err)
			}
			ids = append(ids, l.ID)
		}
		granted := cpuTime()
		for _, id := range ids {
			g.Release(start, id)
		}
		acquire, release = acquire+granted-begun, release+cpuTime()-granted
	}
	rounds = (rounds + batch - 1) / batch * batch
	return acquire / time.Duration(rounds), release / time.Duration(rounds)
}

// warm is a busy fleet whose selectors have been asked for so often that each has
// its views: one for the target that many cool for, one for all others.
func warm(b *testing.B, n int) *Ledger {
	g := busy(n)
	for range 100 {
		if len(g.index.views) == 2*len(benchSelectors()) {
			break
		}
		crawl(b, g, n, 500)
	}
	return g
}

// BenchmarkAcquire is a granted acquire, and its release: 50 selectors take
// turns, a fifth of the fleet cools for three in four requests, a hundredth
// changes each second. It is compared with the search through everything that
// it does without, and with the growth of log n.
func BenchmarkAcquire(b *testing.B) {
	took := map[int]time.Duration{}
	for _, n := range []int{1_000, 10_000, 100_000} {
		var g *Ledger
		b.Run(fmt.Sprintf("proxies=%d", n), func(b *testing.B) {
			if g == nil {
				g = warm(b, n)
			}
			b.ResetTimer()
			acquire, release := crawl(b, g, n, b.N)
			took[n] = acquire
			b.ReportMetric(float64(acquire), "cpu-ns/acquire")
			b.ReportMetric(float64(release), "cpu-ns/release")
		})
	}
	b.Run("scan/proxies=10000", func(b *testing.B) {
		g, selectors := busy(10_000), benchSelectors()
		began := cpuTime()
		for i := 0; b.Loop(); i++ {
			if g.scan(lease.Request{Selector: selectors[i%len(selectors)], Target: benchTarget}) == nil {
				b.Fatal("none")
			}
		}
		if took[10_000] > 0 {
			b.ReportMetric(float64(cpuTime()-began)/float64(b.N)/float64(took[10_000]), "times-acquire")
		}
	})
	if took[1_000] > 0 && took[100_000] > 0 {
		growth := float64(took[100_000]) / float64(took[1_000])
		fmt.Printf("acquire at 1,000, 10,000, 100,000 proxies: %s, %s, %s; growth %.2f, that of log n is %.2f\n",
			took[1_000], took[10_000], took[100_000], growth, math.Log(100_000)/math.Log(1_000))
	}
}

// BenchmarkMemory reports what a proxy takes in a busy ledger with all views,
// and what a lease takes.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		const n, leases = 10_000, 40_000
		before := heapBytes()
		g := warm(b, n)
		proxies := heapBytes() - before

		for i := range leases {
			_, err := g.Acquire(start, lease.Request{
				TTL: time.Minute, Holder: "crawler", Session: fmt.Sprint("session-", i), Key: fmt.Sprint("key-", i),
				Fingerprint: fmt.Sprint("fingerprint-", i), Target: fmt.Sprint("target-", i, ".example.com"),
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(proxies)/n, "B/proxy")
		b.ReportMetric(float64(heapBytes()-before-proxies)/leases, "B/lease")
		runtime.KeepAlive(g)
	}
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
