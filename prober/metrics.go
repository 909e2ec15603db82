package prober

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

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
	fleetHeld  prometheus.Gauge // 1 while much of the fleet does not answer
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
		writes:   counters("proxy_operator_probe_status_writes_total", "Writes of ProxyProbe.status by reason for the write (first_verdict, flip, latency, exit, reason, held) and result (success, failure).", "occasion", "result"),
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
		Help: "Outage holds that suppress verdict flips: probe targets that fail a direct check too (direct_check), and 1 while much of the fleet does not answer (fleet).",
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
	if r.Outcome != probe.Inconclusive {
		of.series.observe(r)
	}
}

func result(err error) string {
	if err != nil {
		return "failure"
	}
	return "success"
}

const durationBucketCount = 5

// durationBuckets are bounds in seconds. They are few, since every proxy has them.
var durationBuckets = [durationBucketCount]float64{0.1, 0.5, 1, 2.5, 5}

// series are the metrics of one proxy, in a tenth of the memory that the client library
// takes. The runner's lock guards them.
type series struct {
	counts   [durationBucketCount + 1]uint32 // by bucket, not cumulative; the last is +Inf
	seconds  float64
	failures uint32
}

// observe counts a success or a failure.
func (s *series) observe(r probe.Result) {
	seconds := r.Latency.Seconds()
	i, _ := slices.BinarySearch(durationBuckets[:], seconds)
	s.counts[i]++
	s.seconds += seconds
	if r.Outcome == probe.Failure {
		s.failures++
	}
}

// namedSeries are the series of a proxy, namespace/name.
type namedSeries struct {
	proxy string
	series
}

// fleetCollector reads the runner at each scrape: a gauge that follows events could
// drift, and deleted proxies have no series.
type fleetCollector struct {
	runner                                                *runner
	leader, targets, sharedExits, durations, failureCount *prometheus.Desc
}

func newFleetCollector(r *runner) *fleetCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("proxy_operator_"+name, help, labels, nil)
	}
	return &fleetCollector{
		runner:       r,
		leader:       desc("prober_leader", "1 while this prober holds its shard's Lease and probes, 0 on standby."),
		targets:      desc("probe_targets", "Proxies that this prober probes, by verdict.", "verdict"),
		sharedExits:  desc("probe_shared_exits", "Proxies of this prober that share their exit address, as seen by echo endpoints, with another proxy."),
		durations:    desc("healthcheck_duration_seconds", "Duration of every probe through a proxy (namespace/name), including failed ones.", "proxy"),
		failureCount: desc("healthcheck_failures_total", "Failed probes of a proxy (namespace/name).", "proxy"),
	}
}

// Describe sends all descriptions.
func (c *fleetCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.leader, c.targets, c.sharedExits, c.durations, c.failureCount} {
		ch <- d
	}
}

// Collect sends the gauges of the fleet and the series of all proxies.
func (c *fleetCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(c.leader, boolGauge(c.runner.leads()))
	gauge(c.sharedExits, float64(c.runner.sharedExits()))
	for verdict, n := range c.runner.verdicts() {
		gauge(c.targets, float64(n), string(verdict))
	}
	for _, s := range c.runner.allSeries() {
		ch <- proxyMetric{c.durations, s, writeDurations}
		ch <- proxyMetric{c.failureCount, s, writeFailures}
	}
}

// proxyMetric is a metric that is made when it is written.
type proxyMetric struct {
	desc *prometheus.Desc
	namedSeries
	write func(*series, *dto.Metric)
}

// Desc is for the registry.
func (m proxyMetric) Desc() *prometheus.Desc { return m.desc }

// Write fills in labels and value.
func (m proxyMetric) Write(out *dto.Metric) error {
	out.Label = []*dto.LabelPair{{Name: proto.String("proxy"), Value: proto.String(m.proxy)}}
	m.write(&m.series, out)
	return nil
}

func writeDurations(s *series, out *dto.Metric) {
	h, total := &dto.Histogram{}, uint64(0)
	for i, bound := range durationBuckets {
		total += uint64(s.counts[i])
		h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: proto.Float64(bound), CumulativeCount: proto.Uint64(total)})
	}
	total += uint64(s.counts[len(s.counts)-1])
	h.SampleCount, h.SampleSum = proto.Uint64(total), proto.Float64(s.seconds)
	out.Histogram = h
}

func writeFailures(s *series, out *dto.Metric) {
	out.Counter = &dto.Counter{Value: proto.Float64(float64(s.failures))}
}

// allSeries copies the series of all monitors.
func (r *runner) allSeries() []namedSeries {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]namedSeries, 0, len(r.monitors))
	for key, m := range r.monitors {
		out = append(out, namedSeries{key.String(), m.series})
	}
	return out
}
