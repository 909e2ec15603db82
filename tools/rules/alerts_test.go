package rules

import (
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// evaluation is how often Prometheus looks at a rule.
const evaluation = time.Minute

// testFile is promtool's format for unit tests of rules, as far as it is used.
type testFile struct {
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	Tests              []struct {
		Name        string         `yaml:"name"`
		Interval    model.Duration `yaml:"interval"`
		InputSeries []struct {
			Series string `yaml:"series"`
			Values string `yaml:"values"`
		} `yaml:"input_series"`
		AlertRuleTest []alertCase `yaml:"alert_rule_test"`
	} `yaml:"tests"`
}

type alertCase struct {
	EvalTime  model.Duration `yaml:"eval_time"`
	AlertName string         `yaml:"alertname"`
	ExpAlerts []struct {
		ExpLabels map[string]string `yaml:"exp_labels"`
		// ExpAnnotations are compared where they are given.
		ExpAnnotations map[string]string `yaml:"exp_annotations"`
	} `yaml:"exp_alerts"`
}

func loadTests(t *testing.T) testFile {
	t.Helper()
	f, err := os.Open(monitoring + "alerts_test.yaml")
	require.NoError(t, err)
	defer f.Close()
	decoder := yaml.NewDecoder(f)
	decoder.KnownFields(true)
	var file testFile
	require.NoError(t, decoder.Decode(&file))
	return file
}

func TestAlerts(t *testing.T) {
	byName := map[string]rulefmt.Rule{}
	for _, rule := range alertRules(t) {
		byName[rule.Alert] = rule
	}
	file := loadTests(t)
	require.Equal(t, evaluation, time.Duration(file.EvaluationInterval))
	fired, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		var load strings.Builder
		load.WriteString("load " + test.Interval.String() + "\n")
		for _, series := range test.InputSeries {
			load.WriteString("  " + series.Series + " " + series.Values + "\n")
		}
		t.Run(test.Name, func(t *testing.T) {
			store := promqltest.LoadedStorage(t, load.String())
			defer store.Close()
			query := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 0, 1e6), store)
			for _, c := range test.AlertRuleTest {
				rule, known := byName[c.AlertName]
				require.True(t, known, c.AlertName)
				check(t, rule, query, c)
				if len(c.ExpAlerts) > 0 {
					fired[c.AlertName] = true
				} else {
					quiet[c.AlertName] = true
				}
			}
		})
	}
	for name := range byName {
		assert.True(t, fired[name], "no case in which %s fires", name)
		assert.True(t, quiet[name], "no case in which %s is quiet", name)
	}
}

// check evaluates a rule every minute up to a time, and compares what fires.
func check(t *testing.T, r rulefmt.Rule, query rules.QueryFunc, c alertCase) {
	t.Helper()
	expr, err := exprParser().ParseExpr(r.Expr)
	require.NoError(t, err)
	rule := rules.NewAlertingRule(r.Alert, expr, time.Duration(r.For), time.Duration(r.KeepFiringFor),
		labels.FromMap(r.Labels), labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	for ts := time.Unix(0, 0); !ts.After(time.Unix(0, 0).Add(time.Duration(c.EvalTime))); ts = ts.Add(evaluation) {
		_, err := rule.Eval(t.Context(), 0, ts, query, nil, 0)
		require.NoError(t, err)
	}
	var firing []*rules.Alert
	for _, alert := range rule.ActiveAlerts() {
		if alert.State == rules.StateFiring {
			firing = append(firing, alert)
		}
	}
	at := c.AlertName + " at " + c.EvalTime.String()
	require.Len(t, firing, len(c.ExpAlerts), at)
	for _, want := range c.ExpAlerts {
		wantLabels := labels.FromMap(want.ExpLabels)
		i := slices.IndexFunc(firing, func(a *rules.Alert) bool {
			return labels.Equal(labels.NewBuilder(a.Labels).Del(labels.AlertName).Labels(), wantLabels)
		})
		if !assert.GreaterOrEqual(t, i, 0, "%s: no alert with %s, but %s", at, wantLabels, firing[0].Labels) {
			continue
		}
		for name, text := range want.ExpAnnotations {
			assert.Equal(t, text, firing[i].Annotations.Get(name), at)
		}
	}
}

// An operator who is paged finds out what to do.
func TestEveryAlertHasARunbook(t *testing.T) {
	page, err := os.ReadFile(repository + "docs/alerts.md")
	require.NoError(t, err)
	var headings []string
	for line := range strings.Lines(string(page)) {
		if name, found := strings.CutPrefix(line, "### "); found {
			headings = append(headings, strings.TrimSpace(name))
		}
	}
	var alerts []string
	for _, rule := range alertRules(t) {
		alerts = append(alerts, rule.Alert)
		assert.Contains(t, []string{"page", "ticket"}, rule.Labels["severity"], rule.Alert)
		assert.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
		assert.NotEmpty(t, rule.Annotations["description"], rule.Alert)
		assert.True(t, strings.HasSuffix(rule.Annotations["runbook_url"], "/docs/alerts.md#"+strings.ToLower(rule.Alert)), rule.Alert)
	}
	assert.Equal(t, alerts, headings, "docs/alerts.md has one paragraph an alert, in the order of the rules")
}
