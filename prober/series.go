package prober

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

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

// seriesCollector makes the metrics per proxy at each scrape. Deleted proxies have none.
type seriesCollector struct {
	list                func() []namedSeries
	durations, failures *prometheus.Desc
}

func newSeriesCollector(list func() []namedSeries) *seriesCollector {
	return &seriesCollector{
		list: list,
		durations: prometheus.NewDesc("proxy_operator_healthcheck_duration_seconds",
			"Duration of every probe through a proxy (namespace/name), including failed ones.", []string{"proxy"}, nil),
		failures: prometheus.NewDesc("proxy_operator_healthcheck_failures_total",
			"Failed probes of a proxy (namespace/name).", []string{"proxy"}, nil),
	}
}

// Describe sends both descriptions.
func (c *seriesCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.durations
	ch <- c.failures
}

// Collect sends the series of all proxies.
func (c *seriesCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.list() {
		ch <- proxyMetric{c.durations, s, writeDurations}
		ch <- proxyMetric{c.failures, s, writeFailures}
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
