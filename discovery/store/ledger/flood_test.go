package ledger

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// flooded is what an hour of a thousand requests a second with names of their own
// has left behind.
type flooded struct {
	bytes          int64
	taken, refused int
	most           int // kept at once
}

// flood plays the hour by a clock of its own.
func flood(b *testing.B, g *Ledger, kept func() int, one func(now time.Time, i int) error) flooded {
	const perSecond, seconds = 1000, 3600
	var out flooded
	before, now := heapInUse(), start
	for i := range perSecond * seconds {
		now = now.Add(time.Second / perSecond)
		err := one(now, i)
		switch full := (*lease.LimitError)(nil); {
		case errors.As(err, &full):
			out.refused++
		case err != nil:
			b.Fatal(err)
		default:
			out.taken++
		}
		out.most = max(out.most, kept())
	}
	out.bytes = heapInUse() - before
	if err := g.Check(); err != nil {
		b.Fatal(err)
	}
	return out
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func (f flooded) report(b *testing.B) {
	b.ReportMetric(float64(f.bytes)/1e6, "MB")
	b.ReportMetric(float64(f.most), "kept")
	b.ReportMetric(float64(f.bytes)/float64(max(1, f.most)), "B/name")
	b.ReportMetric(float64(f.taken), "taken")
	b.ReportMetric(float64(f.refused), "refused")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkFlood is what one client can have the process keep by making up names.
func BenchmarkFlood(b *testing.B) {
	fleet := func(n, maxLeases int) *Ledger {
		g := New(10*time.Minute, 0, nil)
		var all lease.Offers
		for i := range n {
			o := testOffer(i)
			o.MaxLeases = maxLeases
			all.Changed = append(all.Changed, o)
		}
		g.Offer(all)
		return g
	}
	for name, release := range map[string]bool{"sessions-released": true, "sessions-held": false} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				g := fleet(100, 100_000)
				flood(b, g, func() int { return len(g.sessions) }, func(now time.Time, i int) error {
					l, err := g.Acquire(now, lease.Request{TTL: time.Hour, Holder: "crawler", Session: fmt.Sprint("session-", i)})
					if err == nil && release {
						g.Release(now, l.ID)
					}
					return err
				}).report(b)
				runtime.KeepAlive(g)
			}
		})
	}
	b.Run("leases-expired", func(b *testing.B) {
		for b.Loop() {
			g := fleet(100, 100_000)
			flood(b, g, func() int { return len(g.expired) }, func(now time.Time, i int) error {
				_, err := g.Acquire(now, lease.Request{
					TTL: time.Second, Holder: "crawler", Key: fmt.Sprint("key-", i), Fingerprint: fmt.Sprint("fingerprint-", i),
					Target: fmt.Sprint("target-", i, ".example"),
				})
				return err
			}).report(b)
			runtime.KeepAlive(g)
		}
	})
	for name, n := range map[string]int{"targets-of-1": 1, "targets-of-1000": 1000} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				g := fleet(n, 1)
				ids := make([]string, n)
				for i := range ids {
					l, err := g.Acquire(start, lease.Request{TTL: 24 * time.Hour})
					if err != nil {
						b.Fatal(err)
					}
					ids[i] = l.ID
				}
				flood(b, g, func() int { return g.deadlines[ofTargetCooldown].Len() }, func(now time.Time, i int) error {
					return g.Report(now, ids[i%n], lease.Report{Result: lease.ResultBanned, Target: fmt.Sprint("target-", i, ".example")})
				}).report(b)
				runtime.KeepAlive(g)
			}
		})
	}
}
