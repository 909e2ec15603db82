package webhooks

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// unknownProvider is the label value of providers that the config does not have. A
// Proxy may name any provider, and a counter keeps every label value.
const unknownProvider = "unknown"

// metrics of the hook service. The budget's gauges are computed at scrape time:
// gauges that are incremented and decremented drift.
type metrics struct {
	requests, desired, deleted *prometheus.CounterVec
	duration                   *prometheus.HistogramVec
	adapter, abandoned         *prometheus.CounterVec
	adapterTime                *prometheus.HistogramVec
	unknown                    prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, b *budget) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "proxy_operator_" + name, Help: help}, labels)
	}
	histogram := func(name, help, label string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "proxy_operator_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(0.00025, 2, 14),
		}, []string{label})
	}
	m := &metrics{
		requests:    counter("hook_requests_total", "Hook requests by hook and HTTP status code.", "hook", "code"),
		duration:    histogram("hook_duration_seconds", "Time from a hook request's header to the end of its answer.", "hook"),
		desired:     counter("hook_children_desired_total", "Children that answers listed, to be kept or created, by kind. Divided by the sync requests it is the share of the fleet that is wanted.", "kind"),
		deleted:     counter("hook_children_deleted_total", "Observed children that an answer left out, so that Metacontroller deletes them, by the reason in the Proxy's status.", "reason"),
		adapter:     counter("adapter_requests_total", "Requests of the hooks to the cloud adapter by method and result; skipped ones were not sent, since the last one timed out.", "method", "result"),
		adapterTime: histogram("adapter_duration_seconds", "Time of the cloud adapter's replies to the hooks.", "method"),
		abandoned:   counter("abandoned_total", "Proxies that were finalized without a request to the cloud for their instance, because of their annotation; the provider is unknown when it is not in the config.", "provider"),
	}
	m.unknown = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "proxy_operator_hook_unknown_fields_total",
		Help: "Envelope fields of hook requests that this release ignores, such as those of a newer Metacontroller; the log names them.",
	})
	reg.MustRegister(m.unknown, m.requests, m.duration, m.desired, m.deleted, m.adapter, m.adapterTime, m.abandoned, newBudgetCollector(b))
	return m
}

// adapterRequest counts one request to the cloud adapter.
func (m *metrics) adapterRequest(method, result string, took time.Duration) {
	m.adapter.WithLabelValues(method, result).Inc()
	if result != "skipped" {
		m.adapterTime.WithLabelValues(method).Observe(took.Seconds())
	}
}

// listed counts the children of an answer.
func (m *metrics) listed(children []*unstructured.Unstructured) {
	for _, c := range children {
		m.desired.WithLabelValues(c.GetKind()).Inc()
	}
}

// budgetCollector reads the replacement budget at every scrape.
type budgetCollector struct {
	budget                        *budget
	seen, underWay, failed, limit *prometheus.Desc
}

func newBudgetCollector(b *budget) budgetCollector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("proxy_operator_"+name, help, []string{"provider"}, nil)
	}
	return budgetCollector{
		budget:   b,
		seen:     desc("proxies_seen", "Managed Proxies that this process has seen lately; a percentage in --max-replacing is of them."),
		underWay: desc("replacements_under_way", "Replacements of running instances because of edited specs, from the beginning until the Proxy is Ready again."),
		failed:   desc("replacements_failed", "Those among them whose Proxy was not Ready within --provisioning-deadline. Where this is the limit, the others wait until one trial succeeds."),
		limit:    desc("replacements_limit", "How many such replacements may be under way."),
	}
}

// Describe implements prometheus.Collector.
func (c budgetCollector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{c.seen, c.underWay, c.failed, c.limit} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (c budgetCollector) Collect(out chan<- prometheus.Metric) {
	for provider, s := range c.budget.states() {
		for desc, v := range map[*prometheus.Desc]int{c.seen: s.seen, c.underWay: s.underWay, c.failed: s.failed, c.limit: s.limit} {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(v), provider)
		}
	}
}
