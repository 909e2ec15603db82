package bench

import (
	"bufio"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	fleet         = 10_000
	fleetInterval = 30 * time.Second
	scrapeEvery   = 5 * time.Second
)

// BenchmarkTenThousandProxies runs the prober on one core with ten thousand
// healthy proxies at the default interval for two rounds, scraped all the while.
func BenchmarkTenThousandProxies(b *testing.B) {
	sc := newScene(b, settings{Proxies: fleet, Interval: fleetInterval, Workers: workers})
	p, ops := sc.prober(b)
	used, begin, highest := cpu(b, p.PID()), time.Now(), 0.0
	for time.Since(begin) < 2*fleetInterval {
		time.Sleep(scrapeEvery)
		scrape(b, ops)
		now, _ := memory(b, p.PID())
		highest = max(highest, now)
	}
	used, took := cpu(b, p.PID())-used, time.Since(begin)
	_, peak := memory(b, p.PID())
	c, lag := sc.counts(b), scrape(b, ops)
	sc.fresh(b)
	require.EqualValues(b, fleet, c.Probed, "proxies probed")
	require.LessOrEqual(b, c.Most, int64(3), "probes of one proxy in two intervals, both ends counted")
	b.Logf("lag of %d probes: 99 %% start within %.3f s, 99.9 %% within %.3f s; %d writes of status", c.Requests, lag.quantile(0.99), lag.quantile(0.999), c.StatusWrites)
	b.Logf("memory: %.0f MB resident at most, %.0f MB at the peak of the first list; %.0f %% of one core", highest, peak, 100*used.Seconds()/took.Seconds())
	b.ReportMetric(lag.quantile(0.99), "s-lag-p99")
	b.ReportMetric(highest, "MB-rss")
	b.ReportMetric(peak, "MB-rss-peak")
	b.ReportMetric(float64(used.Microseconds())/float64(c.Requests), "µs-cpu/probe")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkTenThousandNewProxies measures the time until a fleet without verdicts, all of
// it due at once, has its first verdicts.
func BenchmarkTenThousandNewProxies(b *testing.B) {
	sc := newScene(b, settings{Proxies: fleet, Interval: fleetInterval, Workers: workers, Fresh: true})
	begin := time.Now()
	p, _ := sc.prober(b)
	for sc.counts(b).Probed < fleet {
		require.Less(b, time.Since(begin), patience, p.LogTail())
		time.Sleep(50 * time.Millisecond)
	}
	probed := time.Since(begin)
	for sc.counts(b).StatusWrites < fleet {
		require.Less(b, time.Since(begin), 2*patience, p.LogTail())
		time.Sleep(50 * time.Millisecond)
	}
	sc.fresh(b)
	_, peak := memory(b, p.PID())
	b.ReportMetric(probed.Seconds(), "s-until-probed")
	b.ReportMetric(time.Since(begin).Seconds(), "s-until-written")
	b.ReportMetric(peak, "MB-rss-peak")
	b.ReportMetric(0, "ns/op")
}

// histogram is a cumulative histogram of the prober.
type histogram struct {
	bounds []float64 // the last is +Inf
	counts []float64
}

// scrape fetches the metrics as Prometheus does and returns the lag of the
// schedule.
func scrape(b *testing.B, ops string) (h histogram) {
	b.Helper()
	resp, err := http.Get(ops + "/metrics")
	require.NoError(b, err)
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), `proxy_operator_probe_schedule_lag_seconds_bucket{le="`)
		if !ok {
			continue
		}
		bound, count, ok := strings.Cut(rest, `"} `)
		require.True(b, ok, rest)
		le, err := strconv.ParseFloat(bound, 64)
		require.NoError(b, err)
		n, err := strconv.ParseFloat(count, 64)
		require.NoError(b, err)
		h.bounds, h.counts = append(h.bounds, le), append(h.counts, n)
	}
	require.NotEmpty(b, h.bounds)
	return h
}

// quantile interpolates within a bucket, as Prometheus does.
func (h histogram) quantile(q float64) float64 {
	rank := q * h.counts[len(h.counts)-1]
	low, below := 0.0, 0.0
	for i, count := range h.counts {
		if count >= rank && count > below {
			if math.IsInf(h.bounds[i], 1) {
				return h.bounds[i]
			}
			return low + (h.bounds[i]-low)*(rank-below)/(count-below)
		}
		low, below = h.bounds[i], count
	}
	return low
}
