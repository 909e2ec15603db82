package manifests_test

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// measured is a row of the table in docs/capacity.md: process, and what it needs
// for 1,000 and for 10,000 proxies.
var measured = regexp.MustCompile("(?m)^\\| `(webhooks|discovery|cloud|prober)` \\|[^|]*\\| ([^|]*) \\| ([^|]*) \\|")

var need = regexp.MustCompile(`^(\d+) m.*, (\d+) MB$`)

// needs reads such as "60 m at 91/s, 52 MB"; 0 where nothing was measured.
func needs(t *testing.T, cell string) (milliCPU, bytes int64) {
	t.Helper()
	m := need.FindStringSubmatch(cell)
	if m == nil {
		return 0, 0
	}
	milliCPU, err := strconv.ParseInt(m[1], 10, 64)
	require.NoError(t, err)
	megabytes, err := strconv.ParseInt(m[2], 10, 64)
	require.NoError(t, err)
	return milliCPU, megabytes * 1e6
}

// Requests are no less than what 1,000 proxies were measured to need, and limits
// of memory leave room for 10,000. Bursts may take what is free of the CPU: the
// request has to cover what a process does all the time, the first row of each.
func TestRequestsAreMeasured(t *testing.T) {
	page, err := os.ReadFile("../docs/capacity.md")
	require.NoError(t, err)
	all := renderAll(t)["gcp"]
	seen := map[string]bool{}
	for _, row := range measured.FindAllStringSubmatch(string(page), -1) {
		process := row[1]
		workload := map[bool]string{true: "webhooks", false: process}[process == "cloud"]
		resources := all.container(t, workload, process).Resources
		cpu, memory := needs(t, row[2])
		_, most := needs(t, row[3])
		if !seen[process] {
			assert.GreaterOrEqual(t, resources.Requests.Cpu().MilliValue(), cpu, process)
		}
		seen[process] = true
		assert.GreaterOrEqual(t, resources.Requests.Memory().Value(), memory, process)
		assert.Greater(t, resources.Limits.Memory().Value(), max(memory, most)*3/2, process)
	}
	assert.Len(t, seen, 4, "a row for each process")
}
