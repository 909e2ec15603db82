package webhooks

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// unknownProvider is the label of providers that the config does not have: anybody
// may make names up, and a counter keeps them all.
const unknownProvider = "unknown"

// metrics of the hook service. Its gauges are read at scrape time, since gauges
// that are kept by increments drift.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	desired  *prometheus.CounterVec
	deleted  *prometheus.CounterVec
	// adapter and adapterTime are about questions to the cloud adapter.
	adapter     *prometheus.CounterVec
	adapterTime *prometheus.HistogramVec
	abandoned   *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, b *budget) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "proxy_operator_hook_requests_total",
			Help: "Hook requests by hook and HTTP status code.",
		}, []string{"hook", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "proxy_operator_hook_duration_seconds",
			Help:    "Time from a hook request's header to the end of its answer.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 14),
		}, []string{"hook"}),
		desired: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "proxy_operator_hook_children_desired_total",
			Help: "Children that answers listed, so that they are kept or made, by kind. Against the sync requests it tells how much of the fleet is wanted.",
		}, []string{"kind"}),
		deleted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "proxy_operator_hook_children_deleted_total",
			Help: "Observed children that an answer left out, so that they are deleted, by the reason in the Proxy's status.",
		}, []string{"reason"}),
	}
	m.addAdapter()
	reg.MustRegister(m.requests, m.duration, m.desired, m.deleted, m.adapter, m.adapterTime, m.abandoned, newBudgetCollector(b))
	return m
}

func (m *metrics) addAdapter() {
	m.adapter = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "proxy_operator_adapter_requests_total",
		Help: "Questions of the hooks to the cloud adapter by method and result; skipped ones were not asked, since the last one got no answer.",
	}, []string{"method", "result"})
	m.adapterTime = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "proxy_operator_adapter_duration_seconds",
		Help:    "Time that the cloud adapter took to answer the hooks.",
		Buckets: prometheus.ExponentialBuckets(0.00025, 2, 14),
	}, []string{"method"})
	m.abandoned = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "proxy_operator_abandoned_total",
		Help: "Proxies that went without the cloud being asked for the end of their instance, because of their annotation; the provider is unknown when it is not in the config.",
	}, []string{"provider"})
}

// asked counts one question to the cloud adapter.
func (m *metrics) asked(method, result string, took time.Duration) {
	m.adapter.WithLabelValues(method, result).Inc()
	if result != "skipped" {
		m.adapterTime.WithLabelValues(method).Observe(took.Seconds())
	}
}

func (m *metrics) served(hook string, code int, took time.Duration) {
	m.requests.WithLabelValues(hook, strconv.Itoa(code)).Inc()
	m.duration.WithLabelValues(hook).Observe(took.Seconds())
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
		failed:   desc("replacements_failed", "Those among them whose Proxy was not Ready within --provisioning-deadline. Where this is the limit, the others wait for a trial to end well."),
		limit:    desc("replacements_limit", "How many such replacements may be under way."),
	}
}

// Describe implements prometheus.Collector.
func (c budgetCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.seen
	out <- c.underWay
	out <- c.failed
	out <- c.limit
}

// Collect implements prometheus.Collector.
func (c budgetCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, v int, provider string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(v), provider)
	}
	for provider, s := range c.budget.states() {
		gauge(c.seen, s.seen, provider)
		gauge(c.underWay, s.underWay, provider)
		gauge(c.failed, s.failed, provider)
		gauge(c.limit, s.limit, provider)
	}
}
