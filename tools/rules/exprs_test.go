package rules

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// added are labels that Prometheus adds when it scrapes, and that of histograms.
func added() []string { return []string{"job", "namespace", "pod", "instance", "le"} }

// assertKnown wants every metric and label of an expression to be documented,
// hence to exist: cmd/metrics_test.go compares the page with the processes.
func assertKnown(t *testing.T, known map[string][]string, where, expr string) {
	t.Helper()
	parsed, err := exprParser().ParseExpr(expr)
	require.NoError(t, err, where)
	var used, names []string
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			names = append(names, n.Name)
			for _, matcher := range n.LabelMatchers {
				used = append(used, matcher.Name)
			}
		case *parser.AggregateExpr:
			used = append(used, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				used = append(used, n.VectorMatching.MatchingLabels...)
			}
		}
		return nil
	})
	labelsOf := added()
	for _, name := range names {
		if name == "up" {
			continue
		}
		metric := name
		if _, found := known[metric]; !found {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				metric = strings.TrimSuffix(metric, suffix)
			}
		}
		assert.Contains(t, known, metric, "%s: no such metric: %s", where, name)
		labelsOf = append(labelsOf, known[metric]...)
	}
	for _, label := range used {
		assert.True(t, label == labels.MetricName || slices.Contains(labelsOf, label), "%s: no such label: %s in %s", where, label, expr)
	}
}

func TestAlertsUseWhatThereIs(t *testing.T) {
	known := documented(t)
	for _, rule := range alertRules(t) {
		assertKnown(t, known, rule.Alert, rule.Expr)
	}
}

func TestDashboardUsesWhatThereIs(t *testing.T) {
	content, err := os.ReadFile(monitoring + "dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Title, UID string
		Panels     []struct {
			ID          int
			Title, Type string
			GridPos     struct{ H, W, X, Y int }
			Targets     []struct{ Expr, LegendFormat string }
		}
	}
	require.NoError(t, json.Unmarshal(content, &dashboard))
	require.NotEmpty(t, dashboard.UID)
	known, ids := documented(t), map[int]bool{}
	for _, panel := range dashboard.Panels {
		assert.False(t, ids[panel.ID], "panel %d is there twice", panel.ID)
		ids[panel.ID] = true
		assert.LessOrEqual(t, panel.GridPos.X+panel.GridPos.W, 24, panel.Title)
		if panel.Type != "row" {
			assert.NotEmpty(t, panel.Targets, panel.Title)
		}
		for _, target := range panel.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$__range", "6h").Replace(target.Expr)
			assertKnown(t, known, panel.Title, expr)
		}
	}
	assert.Greater(t, len(ids), 10)
}

// The checks above would pass for ever if nothing was ever unknown.
func TestUnknownIsFound(t *testing.T) {
	known := map[string][]string{"proxy_operator_x": {"a"}}
	for _, expr := range []string{`proxy_operator_y`, `proxy_operator_x{b="1"}`, `sum by (b) (proxy_operator_x)`} {
		inner := &testing.T{}
		assertKnown(inner, known, "", expr)
		assert.True(t, inner.Failed(), expr)
	}
	assertKnown(t, known, "", `sum by (a) (rate(proxy_operator_x_count{job="j"}[5m]))`)
}
