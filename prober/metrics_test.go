package prober

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

func TestMetricsCountEveryProbe(t *testing.T) {
	r := newRig(t, 8)
	require.NoError(t, r.runner.Add(proxyProbeOf("a")))
	for _, res := range []probe.Result{good(300 * time.Millisecond), bad(probe.ReasonDialFailed), unsure(probe.ReasonProberFault), good(2 * time.Second)} {
		r.round(res)
	}
	require.NoError(t, testutil.GatherAndCompare(r.reg, strings.NewReader(`
# HELP proxy_operator_healthcheck_duration_seconds Duration of every probe through a proxy (namespace/name), including failed ones.
# TYPE proxy_operator_healthcheck_duration_seconds histogram
proxy_operator_healthcheck_duration_seconds_bucket{proxy="crawl/a",le="0.1"} 0
proxy_operator_healthcheck_duration_seconds_bucket{proxy="crawl/a",le="0.5"} 1
proxy_operator_healthcheck_duration_seconds_bucket{proxy="crawl/a",le="1"} 2
proxy_operator_healthcheck_duration_seconds_bucket{proxy="crawl/a",le="2.5"} 3
proxy_operator_healthcheck_duration_seconds_bucket{proxy="crawl/a",le="5"} 3
proxy_operator_healthcheck_duration_seconds_bucket{proxy="crawl/a",le="+Inf"} 3
proxy_operator_healthcheck_duration_seconds_sum{proxy="crawl/a"} 3.3
proxy_operator_healthcheck_duration_seconds_count{proxy="crawl/a"} 3
# HELP proxy_operator_healthcheck_failures_total Failed probes of a proxy (namespace/name).
# TYPE proxy_operator_healthcheck_failures_total counter
proxy_operator_healthcheck_failures_total{proxy="crawl/a"} 1
# HELP proxy_operator_probes_total Probes of all proxies by result (success, failure, inconclusive) and reason.
# TYPE proxy_operator_probes_total counter
proxy_operator_probes_total{reason="DialFailed",result="failure"} 1
proxy_operator_probes_total{reason="ProbeSucceeded",result="success"} 2
proxy_operator_probes_total{reason="ProberFault",result="inconclusive"} 1
# HELP proxy_operator_probe_targets Proxies that this prober probes, by verdict.
# TYPE proxy_operator_probe_targets gauge
proxy_operator_probe_targets{verdict="Healthy"} 1
proxy_operator_probe_targets{verdict="Unhealthy"} 0
proxy_operator_probe_targets{verdict="Unknown"} 0
`), "proxy_operator_healthcheck_duration_seconds", "proxy_operator_healthcheck_failures_total", "proxy_operator_probes_total", "proxy_operator_probe_targets"))
}

// After many proxies were created and deleted only the fixed set of series remains.
func TestSeriesAreBounded(t *testing.T) {
	r := newRig(t, 10)
	count := func() int {
		n, err := testutil.GatherAndCount(r.reg)
		require.NoError(t, err)
		return n
	}
	before := count()
	for i := range 200 {
		p := proxyProbeOf("p" + strconv.Itoa(i))
		require.NoError(t, r.runner.Add(p))
		result := fails(probe.ReasonUpstreamFailed)
		for s := range result.Stages {
			result.Stages[s] = time.Millisecond
		}
		result.Stages[probe.StageSetup] = 0
		r.runner.finish(r.one(), result)
		require.NoError(t, r.runner.Delete(p))
	}
	assert.Equal(t, before+1, count(), "one for the reason")
}
