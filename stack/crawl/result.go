package crawl

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// use is an attempt through a proxy.
type use struct {
	proxy string
	at    time.Time
}

// useLog collects the attempts of all workers.
type useLog struct {
	mu   sync.Mutex
	uses []use
}

func (l *useLog) add(proxy string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uses = append(l.uses, use{proxy, time.Now()})
}

func (l *useLog) all() []use {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.uses)
}

// newPauses returns the pauses of one worker: half to one and a half of cfg.Pause.
func newPauses(cfg Config, worker int) func() time.Duration {
	random := rand.New(rand.NewPCG(cfg.Seed+1, uint64(worker)))
	return func() time.Duration {
		return cfg.Pause/2 + time.Duration(random.Int64N(int64(cfg.Pause)+1))
	}
}

// Result of a crawl in one way.
type Result struct {
	Way string
	// PagesPerMinute that were fetched, and Lost ones in all.
	PagesPerMinute float64
	Lost           int
	// LeasesLeft after the crawl.
	LeasesLeft int
	// Spread is the attempts of the most used proxy over the mean; 0 without proxies.
	Spread float64
	// DeadUses are the attempts through proxies that failed. LastUseP50 and LastUseMax are
	// the times from a proxy's failure to the last attempt through it before it recovered.
	DeadUses               int
	LastUseP50, LastUseMax time.Duration
}

func summarize(name string, pages []tally, uses []use, faults []outage, took time.Duration, left int) Result {
	r := Result{Way: name, LeasesLeft: left, Spread: spread(uses)}
	fetched := 0
	for _, t := range pages {
		fetched += t.fetched
		r.Lost += t.lost
	}
	r.PagesPerMinute = float64(fetched) / took.Minutes()
	var last []time.Duration
	for _, f := range faults {
		n, after := lastUse(f, uses)
		r.DeadUses += n
		last = append(last, after)
	}
	if len(last) > 0 {
		slices.Sort(last)
		r.LastUseP50, r.LastUseMax = last[len(last)/2], last[len(last)-1]
	}
	return r
}

// lastUse counts the attempts through a proxy during an outage, and returns the time from
// its beginning to the last of them.
func lastUse(o outage, uses []use) (n int, after time.Duration) {
	for _, u := range uses {
		if u.proxy == o.proxy && u.at.After(o.from) && u.at.Before(o.to) {
			n++
			after = max(after, u.at.Sub(o.from))
		}
	}
	return n, after
}

func spread(uses []use) float64 {
	count := map[string]int{}
	most := 0
	for _, u := range uses {
		count[u.proxy]++
		most = max(most, count[u.proxy])
	}
	if len(uses) == 0 {
		return 0
	}
	return float64(most) * float64(len(count)) / float64(len(uses))
}

func writeTable(out io.Writer, results []Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "crawl with\tpages/min\tlost\tleases left\tmax/mean use\tuses of failed proxies\tlast use after failure p50\tmax")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%.0f\t%d\t%d\t%.2f\t%d\t%s\t%s\n", r.Way, r.PagesPerMinute, r.Lost, r.LeasesLeft, r.Spread, r.DeadUses,
			r.LastUseP50.Round(10*time.Millisecond), r.LastUseMax.Round(10*time.Millisecond))
	}
	return w.Flush()
}
