package cloud

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
)

const namespace = "proxy_operator"

// metrics are the counters and histograms.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	made     *prometheus.CounterVec
	answers  *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	sweeps   *prometheus.CounterVec
	orphans  *prometheus.GaugeVec
	deleted  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	m := &metrics{
		requests: counter("provider_requests_total", "Calls to providers by operation and result.", "provider", "op", "result"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "provider_request_duration_seconds", Help: "Duration of calls to providers.",
			Buckets: prometheus.ExponentialBuckets(0.05, 2, 11),
		}, []string{"provider", "op"}),
		made:    counter("cloud_instances_made_total", "Instances made, by reason: new, replaced or lost.", "provider", "reason"),
		answers: counter("cloud_api_requests_total", "Requests of the hooks by method and HTTP status.", "method", "code"),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "cloud_api_request_duration_seconds", Help: "Duration of the hooks' requests, which never wait for a provider.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8),
		}, []string{"method"}),
		sweeps:  counter("gc_sweeps_total", "Orphan sweeps by result: done, failed, partial or refused.", "account", "result"),
		deleted: counter("gc_deleted_total", "Orphans deleted.", "account"),
		orphans: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "gc_orphans", Help: "Instances without a Proxy in the last sweep.",
		}, []string{"account"}),
	}
	reg.MustRegister(m.requests, m.seconds, m.made, m.answers, m.latency, m.sweeps, m.orphans, m.deleted)
	return m
}

// Request counts a call to a provider.
func (m *metrics) Request(provider, op, result string, took time.Duration) {
	m.requests.WithLabelValues(provider, op, result).Inc()
	m.seconds.WithLabelValues(provider, op).Observe(took.Seconds())
}

// Made counts a made instance.
func (m *metrics) Made(provider, reason string) { m.made.WithLabelValues(provider, reason).Inc() }

// Answered counts a request of the hooks.
func (m *metrics) Answered(method string, status int, took time.Duration) {
	m.answers.WithLabelValues(method, strconv.Itoa(status)).Inc()
	m.latency.WithLabelValues(method).Observe(took.Seconds())
}

// Swept counts a sweep. The gauge keeps its value after a failed or partial one.
func (m *metrics) Swept(account, result string, orphans, deleted int) {
	m.sweeps.WithLabelValues(account, result).Inc()
	m.deleted.WithLabelValues(account).Add(float64(deleted))
	if result == "done" || result == "refused" {
		m.orphans.WithLabelValues(account).Set(float64(orphans))
	}
}

// collector reads the reconciler's cache at scrape time, so that no series becomes
// stale.
type collector struct {
	list func() (adapter.List, bool) // returns the cache, false while this adapter may not act

	leader, listed, unreachable, instances *prometheus.Desc
}

func newCollector(list func() (adapter.List, bool)) *collector {
	description := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(namespace+"_"+name, help, labels, nil)
	}
	return &collector{
		list:        list,
		leader:      description("cloud_leader", "1 while this adapter holds the lease and may act."),
		listed:      description("cloud_last_list_timestamp_seconds", "When the last successful list of a provider's instances began.", "provider"),
		unreachable: description("cloud_unreachable_zones", "Zones that were unreachable in the last list.", "provider"),
		instances:   description("cloud_instances", "Instances that were requested or listed, by state and failure; without provider those without a request.", "provider", "state", "failure"),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{c.leader, c.listed, c.unreachable, c.instances} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	list, leads := c.list()
	value := 0.0
	if leads {
		value = 1
	}
	gauge(c.leader, value)
	for _, p := range list.Providers {
		if p.ListedAt != nil {
			gauge(c.listed, float64(p.ListedAt.UnixMilli())/1000, p.Name)
		}
		gauge(c.unreachable, float64(len(p.UnreachableZones)), p.Name)
	}
	type key struct{ provider, state, failure string }
	counts := map[key]float64{}
	for _, i := range list.Instances {
		k := key{provider: i.Provider, state: string(i.State)}
		if i.Failure != nil {
			k.failure = string(i.Failure.Class)
		}
		counts[k]++
	}
	for k, n := range counts {
		gauge(c.instances, n, k.provider, k.state, k.failure)
	}
}

func (a *Adapter) list() (adapter.List, bool) {
	if r := a.current.Load(); r != nil {
		return r.List(), true
	}
	return adapter.List{}, false
}
