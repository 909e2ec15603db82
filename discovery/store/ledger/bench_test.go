package ledger

import (
	"fmt"
	"math"
	"runtime"
	"slices"
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
		g.proxies[o.ProxyUID].lastGrant = uint64(i*7919%n) + 1
		if i/50%4 == 1 {
			g.insert(&activeLease{Record: Record{Lease: lease.Lease{ID: fmt.Sprint(i), Instance: o.Instance, Proxy: o.Proxy, FencingToken: uint64(i), ExpiresAt: start.Add(time.Hour)}}})
		}
		if i/50%5 == 1 {
			g.startCooldown(Cooldown{ProxyUID: o.ProxyUID, Target: benchTarget, Until: start.Add(time.Hour)})
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

// crawl is a fleet of n at work.
type crawl struct {
	*testing.B
	g         *Ledger
	n         int
	selectors []map[string]string
	i         int           // requests so far
	changes   int           // of the fleet so far
	spent     time.Duration // processor time so far
	out       []string      // leases, the oldest first
	hold      int           // how many leases stay out
}

// warm is a busy fleet whose selectors have been asked for so often that each has
// its views: one for the target that many cool for, one for all others. So many leases
// stay out, besides the batch.
func warm(b *testing.B, n, hold int) *crawl {
	c := &crawl{B: b, g: busy(n), n: n, selectors: benchSelectors(), hold: hold}
	for range 100 {
		if len(c.g.index.views) == 2*len(c.selectors) {
			break
		}
		c.run(500)
	}
	return c
}

// run acquires, then releases those that are out the longest, a batch at a time,
// while one in a hundred proxies changes each second, in between. It returns the
// processor time of one acquire, and that of one release.
func (c *crawl) run(rounds int) (acquire, release time.Duration) {
	batches := (rounds + batch - 1) / batch
	for range batches {
		begun := cpuTime()
		c.change()
		changed := cpuTime()
		c.acquire()
		granted := cpuTime()
		c.release()
		released := cpuTime()
		acquire, release = acquire+granted-changed, release+released-granted
		c.spent += released - begun
	}
	return acquire / time.Duration(batches*batch), release / time.Duration(batches*batch)
}

// change makes the changes that are due.
func (c *crawl) change() {
	for due := int(c.spent.Seconds() * float64(c.n) / 100); c.changes < due; c.changes++ {
		o := testOffer((c.changes * 7919) % c.n)
		o.LatencyMillis += int64(c.changes % 40)
		o.Leasable = c.changes%3 != 0
		c.g.Offer(lease.Offers{Changed: []*lease.Offer{o}})
	}
}

// acquire acquires a batch.
func (c *crawl) acquire() {
	for range batch {
		target := benchTarget
		if c.i%4 == 0 {
			target = ""
		}
		l, err := c.g.Acquire(start, lease.Request{Selector: c.selectors[c.i%len(c.selectors)], Target: target, TTL: time.Minute})
		if err != nil {
			c.Fatal(err)
		}
		c.out, c.i = append(c.out, l.ID), c.i+1
	}
}

// release releases all but those that stay out.
func (c *crawl) release() {
	ended := max(0, len(c.out)-c.hold)
	for _, id := range c.out[:ended] {
		c.g.Release(start, id)
	}
	c.out = append(c.out[:0], c.out[ended:]...)
}

// BenchmarkAcquire is a granted acquire, and its release: 50 selectors take
// turns, a fifth of the fleet cools for three in four requests, a hundredth
// changes each second.
func BenchmarkAcquire(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		var c *crawl
		b.Run(fmt.Sprintf("proxies=%d", n), func(b *testing.B) {
			if c == nil {
				c = warm(b, n, 0)
			}
			b.ResetTimer()
			acquire, release := c.run(b.N)
			b.ReportMetric(float64(acquire), "cpu-ns/acquire")
			b.ReportMetric(float64(release), "cpu-ns/release")
		})
	}
}

// BenchmarkGrowth is how an acquire's time grows with the fleet, beside the
// growth of log n, and how much longer the search through everything takes that
// it does without. The fleets take turns, so that what else the machine does hits
// all of them alike, and what counts is the median turn. A turn is long enough
// for the caches to forget the fleet before: else the small one, which has to be
// fetched again each time, looks slow.
//
// With short leases a batch is released before the next one. With long ones a
// tenth of the fleet is out, so that a proxy comes up in all its views before its
// lease is released.
func BenchmarkGrowth(b *testing.B) {
	b.Run("leases=short", func(b *testing.B) { growth(b, 0) })
	b.Run("leases=long", func(b *testing.B) { growth(b, 0.1) })
}

// growth has leases on that share of the fleet stay out.
func growth(b *testing.B, out float64) {
	const turn = 200 * batch
	sizes := []int{1_000, 10_000, 100_000}
	var fleets []*crawl
	for _, n := range sizes {
		fleets = append(fleets, warm(b, n, int(out*float64(n))))
	}
	took := make([][]float64, len(sizes))
	var grown []float64
	b.ResetTimer()
	for range max(9, b.N/turn) {
		for i, c := range fleets {
			acquire, _ := c.run(turn)
			took[i] = append(took[i], float64(acquire))
		}
		last := len(took[0]) - 1
		grown = append(grown, took[2][last]/took[0][last])
	}
	b.StopTimer()
	for i, n := range sizes {
		b.ReportMetric(median(took[i]), fmt.Sprintf("cpu-ns/acquire-%d", n))
	}
	b.ReportMetric(median(grown), "growth")
	b.ReportMetric(math.Log(100_000)/math.Log(1_000), "growth-of-log-n")
	b.ReportMetric(float64(fleets[1].scan(100))/median(took[1]), "times-by-scan-10000")
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// scan is the processor time of one search through everything.
func (c *crawl) scan(rounds int) time.Duration {
	began := cpuTime()
	for i := range rounds {
		if c.g.scan(lease.Request{Selector: c.selectors[i%len(c.selectors)], Target: benchTarget}) == nil {
			c.Fatal("none")
		}
	}
	return (cpuTime() - began) / time.Duration(rounds)
}

// BenchmarkMemory reports what a proxy takes in a busy ledger with all views,
// and what a lease takes.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		const n, leases = 10_000, 40_000
		before := heapBytes()
		g := warm(b, n, 0).g
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
