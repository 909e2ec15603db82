package cmd_test

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/access"
	discovery "gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/api"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/version"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/events"
)

var update = flag.Bool("update", false, "write docs/metrics.md anew")

const metricsPage = "../docs/metrics.md"

// metric is one that a process registers.
type metric struct {
	name, process, kind string
	labels              []string
	help                string
}

// row is its line in docs/metrics.md.
func (m metric) row() string {
	labels := make([]string, len(m.labels))
	for i, label := range m.labels {
		labels[i] = "`" + label + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", m.name, m.process, m.kind, strings.Join(labels, ", "), m.help)
}

// registerer takes what a process registers, and remembers it.
type registerer struct {
	*prometheus.Registry
	collectors []prometheus.Collector
}

func (r *registerer) Register(c prometheus.Collector) error {
	r.collectors = append(r.collectors, c)
	return r.Registry.Register(c)
}

func (r *registerer) MustRegister(cs ...prometheus.Collector) {
	r.collectors = append(r.collectors, cs...)
	r.Registry.MustRegister(cs...)
}

var descText = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: "(.*?)", (?:unit: "[^"]*", )?constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}`)

func (r *registerer) metrics(t *testing.T, process string) []metric {
	t.Helper()
	var out []metric
	for _, c := range r.collectors {
		descs := make(chan *prometheus.Desc, 100)
		c.Describe(descs)
		close(descs)
		require.NotEmpty(t, descs, "%s: a %T that describes nothing cannot be documented", process, c)
		for desc := range descs {
			parts := descText.FindStringSubmatch(desc.String())
			require.NotNil(t, parts, desc.String())
			m := metric{name: parts[1], process: process, kind: kindOf(c, parts[1]), help: strings.ReplaceAll(parts[2], `\"`, `"`)}
			for label := range strings.SplitSeq(parts[3]+","+parts[4], ",") {
				if name, _, _ := strings.Cut(label, "="); name != "" {
					m.labels = append(m.labels, name)
				}
			}
			out = append(out, m)
		}
	}
	return out
}

// kindOf is a metric's type. Our own collectors read values at scrape time: gauges,
// or counters and histograms where the name has their suffix.
func kindOf(c prometheus.Collector, name string) string {
	switch c.(type) {
	case prometheus.Histogram, *prometheus.HistogramVec:
		return "histogram"
	}
	switch {
	case strings.HasSuffix(name, "_total"):
		return "counter"
	case strings.HasSuffix(name, "_duration_seconds"):
		return "histogram"
	}
	return "gauge"
}

// registered is what each process registers beside the Go runtime's metrics.
func registered(t *testing.T) []metric {
	t.Helper()
	log, clk, api := slog.New(slog.DiscardHandler), clock.RealClock{}, &rest.Config{Host: "https://127.0.0.1:1"}
	var all []metric
	register := func(process string, by func(r *registerer)) {
		r := &registerer{Registry: prometheus.NewRegistry()}
		by(r)
		all = append(all, r.metrics(t, process)...)
	}
	register("all", func(r *registerer) { r.MustRegister(version.Get().Collector()) })
	register("webhooks", func(r *registerer) {
		webhooks.New(webhooks.Options{Clock: clk, Log: log, Registry: r})
		events.New(events.Options{Clock: clk, Log: log, Registry: r})
	})
	register("cloud", func(r *registerer) {
		_, err := cloud.New(cloud.Config{Registry: r, Log: log})
		require.NoError(t, err)
	})
	register("prober", func(r *registerer) {
		_, err := prober.New(prober.Config{API: api, Workers: 1, Registry: r, Log: log})
		require.NoError(t, err)
	})
	register("discovery", func(r *registerer) {
		discovery.NewMetrics(r)
		r.MustRegister(discovery.NewCollector(nil, nil, log))
		options, _, err := redis.ParseURL("redis://127.0.0.1:1")
		require.NoError(t, err)
		store := redis.Open(redis.Config{Options: options, Clock: clk, Log: log})
		defer func() { require.NoError(t, store.Close()) }()
		r.MustRegister(store.Collector())
		tokens, err := access.Single("a-token-of-enough-bytes", 0)
		require.NoError(t, err)
		r.MustRegister(tokens.Collector())
	})
	slices.SortStableFunc(all, func(a, b metric) int {
		return strings.Compare(processOrder(a.process)+a.name, processOrder(b.process)+b.name)
	})
	return all
}

func processOrder(process string) string {
	return fmt.Sprint(slices.Index([]string{"all", "webhooks", "cloud", "prober", "discovery"}, process))
}

// docs/metrics.md lists exactly the registered metrics.
// `go test ./cmd -run Documented -update` writes it.
func TestMetricsAreDocumented(t *testing.T) {
	var rows strings.Builder
	for _, m := range registered(t) {
		rows.WriteString(m.row())
	}
	content, err := os.ReadFile(metricsPage)
	require.NoError(t, err)
	head, rest, found := strings.Cut(string(content), "|---|---|---|---|---|\n")
	require.True(t, found, "docs/metrics.md has no table")
	_, tail, _ := strings.Cut(rest, "|\n\n")
	want := head + "|---|---|---|---|---|\n" + rows.String() + "\n" + tail
	if *update {
		require.NoError(t, os.WriteFile(metricsPage, []byte(want), 0o644))
		return
	}
	assert.Equal(t, want, string(content), "run: go test ./cmd -run Documented -update")
}

// Every label has few values. A new label needs a line here that states how many.
func TestLabelsAreBounded(t *testing.T) {
	bounded := map[string]string{
		"account":   "providers of the config",
		"cause":     "a handful",
		"code":      "HTTP status codes that we send",
		"failure":   "classes of failures",
		"goversion": "one",
		"hook":      "three",
		"kind":      "two",
		"method":    "HTTP methods that we know",
		"occasion":  "three",
		"op":        "a provider's operations",
		"outcome":   "a handful",
		"phase":     "phases of a Proxy",
		"provider":  "providers of the config",
		"proxy":     "Proxies that are there; the series go with them",
		"reason":    "reasons, which are constants",
		"result":    "a handful",
		"revision":  "one",
		"route":     "routes, not paths",
		"stage":     "stages of a probe",
		"state":     "a handful",
		"token":     "tokens of the file",
		"verdict":   "three",
		"version":   "one",
	}
	used := map[string]bool{}
	for _, m := range registered(t) {
		assert.NotEmpty(t, m.help, m.name)
		assert.True(t, strings.HasPrefix(m.name, "proxy_operator_"), m.name)
		for _, label := range m.labels {
			used[label] = true
			assert.Contains(t, bounded, label, "%s: how many values has it?", m.name)
		}
	}
	for label := range bounded {
		assert.True(t, used[label], "no metric has the label %s any more", label)
	}
}
