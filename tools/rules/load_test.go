package rules

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const (
	repository = "../../"
	monitoring = repository + "manifests/components/monitoring/"
)

func exprParser() parser.Parser { return parser.NewParser(parser.Options{}) }

// alertRules returns the rules of the PrometheusRule, checked as Prometheus does
// when it loads them.
func alertRules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	content, err := os.ReadFile(monitoring + "rules.yaml")
	require.NoError(t, err)
	var object struct {
		Spec yaml.Node `yaml:"spec"`
	}
	require.NoError(t, yaml.Unmarshal(content, &object))
	groups, err := yaml.Marshal(&object.Spec)
	require.NoError(t, err)
	parsed, errs := rulefmt.Parse(groups, false, model.LegacyValidation, exprParser(), slog.New(slog.DiscardHandler))
	require.Empty(t, errs)
	var rules []rulefmt.Rule
	for _, group := range parsed.Groups {
		rules = append(rules, group.Rules...)
	}
	require.NotEmpty(t, rules)
	return rules
}

// documented is docs/metrics.md: the labels of each metric by name.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(repository + "docs/metrics.md")
	require.NoError(t, err)
	metrics := map[string][]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`proxy_operator_") {
			continue
		}
		var labels []string
		for label := range strings.SplitSeq(cells[4], ",") {
			if label = strings.Trim(label, " `"); label != "" {
				labels = append(labels, label)
			}
		}
		metrics[strings.Trim(cells[1], " `")] = labels
	}
	require.NotEmpty(t, metrics)
	return metrics
}
