package prober

import (
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

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
