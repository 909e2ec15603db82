package prober

import (
	"github.com/prometheus/client_golang/prometheus"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/outage"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// metrics are the prober's. They count every probe, while status is written on
// transitions only. Metrics per proxy are in its series.
type metrics struct {
	probes     *prometheus.CounterVec
	lag        prometheus.Histogram
	stages     [probe.StageCount]prometheus.Observer
	targetDown prometheus.Gauge // probe targets that fail a direct check
	fleetHeld  prometheus.Gauge // 1 while much of the fleet fails at once
	writes     *prometheus.CounterVec
	renewals   *prometheus.CounterVec
	renewed    prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		probes: counters("proxy_operator_probes_total", "Probes of all proxies by result (success, failure, inconclusive) and reason.", "result", "reason"),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "proxy_operator_probe_schedule_lag_seconds",
			Help:    "Delay of probes after they were due. When it approaches the interval, add --workers or shards.",
			Buckets: []float64{0.01, 0.1, 0.5, 1, 5, 30, 120},
		}),
		writes:   counters("proxy_operator_probe_status_writes_total", "Writes of ProxyProbe.status by reason for the write (first_verdict, flip, latency, exit, held) and result (success, failure).", "occasion", "result"),
		renewals: counters("proxy_operator_prober_lease_renewals_total", "Renewals of the shard's Lease by result (success, failure, withheld).", "result"),
		renewed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "proxy_operator_prober_lease_renewed_timestamp_seconds",
			Help: "Unix time of the last renewal of the shard's Lease, in seconds; 0 before the first one.",
		}),
	}
	stages := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "proxy_operator_probe_stage_duration_seconds",
		Help:    "Duration of the stages of all probes (dial, proxy_tls, connect, tls, http, body), including failed ones.",
		Buckets: []float64{0.001, 0.01, 0.05, 0.1, 0.5, 1, 5, 30},
	}, []string{"stage"})
	for s := probe.StageDial; s < probe.StageCount; s++ {
		m.stages[s] = stages.WithLabelValues(s.String())
	}
	outages := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "proxy_operator_prober_probe_target_down",
		Help: "Outage holds that suppress verdict flips: probe targets that fail a direct check too (direct_check), and 1 while much of the fleet fails at once (fleet).",
	}, []string{"cause"})
	m.targetDown, m.fleetHeld = outages.WithLabelValues("direct_check"), outages.WithLabelValues("fleet")
	reg.MustRegister(m.probes, m.lag, stages, outages, m.writes, m.renewals, m.renewed)
	return m
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// setOutages sets the gauges of held verdicts.
func (m *metrics) setOutages(targets map[string]outage.TargetState, fleetHeld bool) {
	down := 0
	for _, t := range targets {
		if t.Down {
			down++
		}
	}
	m.targetDown.Set(float64(down))
	m.fleetHeld.Set(boolGauge(fleetHeld))
}

func boolGauge(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

func (m *metrics) observe(of *monitor, r probe.Result) {
	m.probes.WithLabelValues(r.Outcome.String(), string(r.Reason)).Inc()
	for s, d := range r.Stages {
		if d > 0 {
			m.stages[s].Observe(d.Seconds())
		}
	}
	if r.Outcome == probe.Inconclusive {
		return
	}
	of.series.observe(r)
}

// newLeaderGauge shows which replica probes.
func newLeaderGauge(leads func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "proxy_operator_prober_leader",
		Help: "1 while this prober holds its shard's Lease and probes, 0 on standby.",
	}, func() float64 { return boolGauge(leads()) })
}

func result(err error) string {
	if err != nil {
		return "failure"
	}
	return "success"
}

// targetCollector counts proxies at each scrape: a gauge that follows events could
// drift.
type targetCollector struct {
	desc  *prometheus.Desc
	count func() map[v1alpha1.Verdict]int
}

func newTargetCollector(count func() map[v1alpha1.Verdict]int) *targetCollector {
	return &targetCollector{
		desc:  prometheus.NewDesc("proxy_operator_probe_targets", "Proxies that this prober probes, by verdict.", []string{"verdict"}, nil),
		count: count,
	}
}

// newSharedExits counts proxies with a shared exit at each scrape.
func newSharedExits(count func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "proxy_operator_probe_shared_exits",
		Help: "Proxies of this prober that share their exit address, as seen by echo endpoints, with another proxy.",
	}, func() float64 { return float64(count()) })
}

// Describe sends the description.
func (c *targetCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect sends the counts.
func (c *targetCollector) Collect(ch chan<- prometheus.Metric) {
	for verdict, n := range c.count() {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), string(verdict))
	}
}
