package manifests_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
)

// assertDocumented scrapes a process that has done its work and wants every
// metric of ours on its page to be in docs/metrics.md, with type and labels.
func assertDocumented(t *testing.T, d *daemon) {
	t.Helper()
	page, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	_, body := programtest.Get(t, "http://"+d.Address(t, "ops endpoint listening")+"/metrics")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	require.NoError(t, err)
	ours := 0
	for name, family := range families {
		if !strings.HasPrefix(name, "proxy_operator_") {
			continue
		}
		ours++
		row := rowOf(string(page), name)
		require.NotNil(t, row, "%s is not in docs/metrics.md", name)
		assert.Equal(t, strings.ToLower(family.GetType().String()), row[3], name)
		for _, label := range labelsOf(family) {
			assert.Contains(t, row[4], "`"+label+"`", name)
		}
	}
	assert.Greater(t, ours, 3)
}

// rowOf returns the cells of a metric's row, nil when there is none.
func rowOf(page, name string) []string {
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "| `"+name+"` |") {
			cells := strings.Split(line, "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			return cells
		}
	}
	return nil
}

func labelsOf(family *dto.MetricFamily) []string {
	var names []string
	for _, m := range family.GetMetric() {
		for _, pair := range m.GetLabel() {
			if !slices.Contains(names, pair.GetName()) {
				names = append(names, pair.GetName())
			}
		}
	}
	return names
}
