//go:build soak

package bench

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/soaktest"
)

var soakProbes = flag.Int("probes", 1_000_000, "probes that the prober makes in a soak")

const soakSamples = 40

// BenchmarkSoak has the real prober make a million probes, each with a new tunnel and TLS
// handshake, of a thousand proxies at the shortest interval that the CRD allows.
// Its memory, goroutines, files and series must stay flat.
func BenchmarkSoak(b *testing.B) {
	sc := newScene(b, settings{Proxies: 1000, Interval: time.Second, Workers: workers, Fresh: true})
	p, ops := sc.prober(b)
	begin := time.Now()
	course := soaktest.Course{Out: os.Stdout}
	for next := *soakProbes / soakSamples; ; {
		select {
		case <-p.Done():
			b.Fatal(p.LogTail())
		case <-time.After(50 * time.Millisecond):
		}
		c := sc.counts(b)
		if int(c.Requests) < next {
			continue
		}
		figures, err := soaktest.Scraped(b.Context(), ops+"/metrics")
		require.NoError(b, err)
		course.Note(int(c.Requests), figures...)
		next = int(c.Requests) + *soakProbes/soakSamples
		if int(c.Requests) >= *soakProbes {
			break
		}
	}
	took, c := time.Since(begin), sc.counts(b)
	sc.fresh(b)
	b.Logf("%d probes of %d proxies in %s, %d writes of status", c.Requests, c.Probed, took.Round(time.Second), c.StatusWrites)
	b.ReportMetric(float64(c.Requests)/took.Seconds(), "probes/s")
	b.ReportMetric(0, "ns/op")
	require.NoError(b, course.Flat())
}
