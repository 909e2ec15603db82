package health

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// The recent probes of ten thousand proxies take a few megabytes.
func TestRecentProbesMemoryIsBounded(t *testing.T) {
	const proxies = 1000
	fleet := make([]Recent, proxies)
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // the second one frees what the first leaves in pools
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	for n := range 3 * RecentProbes {
		for i := range fleet {
			fleet[i].add(probe.Result{
				Reason: probe.ReasonProbeSucceeded, Start: epoch().Add(time.Duration(n) * time.Second),
				Message: strings.Repeat("m", 100) + strconv.Itoa(i), Target: "target.invalid:443",
			})
		}
	}
	each := (heap() - before) / proxies
	assert.Less(t, each, 600.0, "bytes for each proxy")
	runtime.KeepAlive(fleet)
}
