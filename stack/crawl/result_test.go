package crawl

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSummarizeCountsUsesOfFailedProxies(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	uses := []use{{"a", at(1)}, {"a", at(11)}, {"a", at(14)}, {"a", at(31)}, {"b", at(12)}, {"b", at(13)}}
	faults := []outage{{"a", at(10), at(30)}, {"b", at(20), at(30)}}
	r := summarize("leases", []tally{{fetched: 30, lost: 1}, {fetched: 10}}, uses, faults, 30*time.Second, 2)
	assert.Equal(t, Result{
		Way: "leases", PagesPerMinute: 80, Lost: 1, LeasesLeft: 2, Spread: 4.0 / 3,
		DeadUses: 2, LastUseP50: 4 * time.Second, LastUseMax: 4 * time.Second,
	}, r)
	var out strings.Builder
	require.NoError(t, writeTable(&out, []Result{r}))
	assert.Contains(t, out.String(), "80")
	assert.Zero(t, summarize("no proxy", nil, nil, nil, time.Second, 0).Spread)
}

func TestConfigIsValidated(t *testing.T) {
	assert.ErrorContains(t, Config{}.Validate(), "workers: want 1 to 1000")
	assert.NoError(t, Config{Workers: 1, Proxies: 4, Duration: time.Second}.Validate())
}
